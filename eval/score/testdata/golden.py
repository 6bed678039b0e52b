"""Golden values of package score, computed by the published scorers:

    golden.py INFOSEEK_EVAL.PY LMMS_EVAL_FOLDER > golden.json

infoseek_eval.py is of github.com/edchengg/infoseek_eval at c8ef0234; the folder is
that of lmms-eval 0.7.3, of which single functions are taken, so that nothing else
of it need be installed.
"""
import ast, importlib.util, json, pathlib, re, sys

spec = importlib.util.spec_from_file_location("infoseek_eval", sys.argv[1])
infoseek = importlib.util.module_from_spec(spec)
spec.loader.exec_module(infoseek)


def functions(path, *names):
    tree = ast.parse((pathlib.Path(sys.argv[2]) / "tasks" / path).read_text())
    scope = {"re": re}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            exec(compile(ast.Module([node], []), path, "exec"), scope)
    return [scope[n] for n in names]


(relaxed,) = functions("chartqa/utils.py", "relaxed_correctness")
(yes_no,) = functions("mme/utils.py", "parse_pred_ans")
*_, ocr = functions("ocrbench/utils.py", "_fold_fullwidth_ascii", "ocrbench_process_results")

out = []


def case(metric, answer, accepted, want, category="", **meta):
    out.append({"metric": metric, "answer": answer, "accepted": accepted, "category": category, "meta": json.dumps(meta) if meta else "", "want": float(want)})


ranges = [[0.9, 1.1], [98, 120], [-5, 5], [1990, 1994], [0, 0], [1800.0, 2200.0]]
for answer in ["1", "1.05", "about 100 metres", "99-101", "90 - 130", "90-97", "100,5", "2,000", "-3", "-3 to 4", "1992", "1990-1994", "1985-1991", "between 1988 and 1995",
               "none", "", "1.2.3", ".5", "1e3", "10-9", "5 4 3", "9-10-11", "+3", "3.", "0", "1,234,567.8", "2000 m", "2 km (2000 m)", "−3", "１２"]:
    for r in ranges:
        if answer:
            case("infoseek", answer, ["x"], infoseek.metric_numerical_range(infoseek.process_numerical_answer(answer), r), "numerical", range=r)
for answer in ["The Beatles", "beatles", "Beatles!", "a beatles", "The", "12 July 1998", "1998", "Zoë", "state-of-the-art"]:
    for truth in [["Beatles", "The Fab Four"], ["12 July 1998", "1998"], ["Zoe"], ["state of the art"], ["stateoftheart"]]:
        for kind in ["string", "time"]:
            want = max(infoseek.exact_match_score(answer, t) for t in truth)
            if infoseek.normalize_answer(answer):
                case("infoseek", answer, truth, want, kind)

for answer in ["10", "10.5", "10.51", "9.5", "9.49", "10%", "0.1", "0.105", "Yes", "yes", "YES!", "1,000", "1e1", "inf", "nan", "-10", "", "0", "ten", "10 %", "0x10", " 10 ", "100%%"]:
    for truth in ["10", "10%", "0.1", "0", "yes", "-10", "1000", "10 %"]:
        if answer:
            case("chartqa", answer, [truth], relaxed(answer, truth))

for answer in ["Yes", "no", "Yes.", "No, it is not", "y", "n", "Y.", "I do not know", "maybe", "not sure", "Yes and no", "nope", "unknown", "It is yes", " yes", "."]:
    for truth in ["Yes", "No"]:
        case("mme", answer, [truth], yes_no(answer) == truth.lower())

for answer in ["The word is CENTRE.", "centre", "cen\ntre", "x ^ 2 + Y", "x^2+y", "ＣＥＮＴＲＥ　１", "total: 1,234.50", "none"]:
    for truth in [["CENTRE"], ["ｃｅｎｔｒｅ"], ["cen tre"], ["x ^ 2 + y"], ["X ^ 2"], ["1234.50", "1,234.50"]]:
        for dataset in ["IIIT5K", "HME100k"]:
            got = ocr({"answer": truth, "dataset": dataset, "question_type": "q"}, [answer])["ocrbench_accuracy"]["score"]
            case("ocrbench", answer, truth, got, dataset=dataset)
json.dump(out, sys.stdout, ensure_ascii=False, separators=(",", ":"))
print()
