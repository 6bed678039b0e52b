package protocol

// CutMark stands where the middle of a long observation was taken out.
const CutMark = "...[cut]..."

// Cut shortens text to limit runes plus the mark: head and tail of limit/2 runes
// each stay, the middle goes. With the limit of 9,999 that is 4,999 at either
// end. A limit of 0 or less means none.
func Cut(text string, limit int) string {
	if limit <= 0 || len(text) <= limit {
		return text
	}
	r := []rune(text)
	if len(r) <= limit {
		return text
	}
	half := limit / 2
	return string(r[:half]) + CutMark + string(r[len(r)-half:])
}
