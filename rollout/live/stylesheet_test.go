package live

import (
	"strings"
	"testing"
	"time"

	"searchloop/internal/netguard"
)

func textOf(t *testing.T, page string) string {
	t.Helper()
	text, err := pageText(&netguard.Body{URL: "https://a.test/", Type: "text/html; charset=utf-8", Data: []byte(page)})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "\n")
	return strings.Join(strings.Fields(text), " ")
}

// What a page's own style sheets hide is not read; what they show again, what is
// hidden on other media, and what rules say that are not known, stays.
func TestStyleSheetsHide(t *testing.T) {
	for sheet, want := range map[string]string{
		".x{display:none}":                                   "seen",
		"#i { DISPLAY : none !important }":                   "seen",
		"aside{visibility:hidden}":                           "seen",
		"div aside.x.y {opacity:0}":                          "seen",
		".a, .x, .b{font-size:0px;color:red}":                "seen",
		".x{position:absolute;left:-9999px}":                 "seen",
		".x{overflow:hidden;width:1px;height:1px}":           "seen",
		"@media screen{.x{display:none}}":                    "seen",
		"@charset \"utf-8\"; /* x */ .x{display:none":        "seen",
		"}}}{ ; .q{: red} .x{display:none}":                  "seen",
		".x{display:block}.x{display:none}":                  "seen",
		".x.y{display:block}.x{display:none}":                "seen secret",
		".x{display:none}.x{display:block}":                  "seen secret",
		".x{display:none!important}.x.y{display:block}":      "seen",
		"#i{display:none}.x{display:block}":                  "seen",
		"@media print{.x{display:none}}":                     "seen secret",
		"@media (max-width:600px){.x{display:none}}":         "seen secret",
		"@media print{@media screen{.x{display:none}}} p{}":  "seen secret",
		"@supports (display:grid){.x{display:none}}":         "seen secret",
		".z{display:none}":                                   "seen secret",
		"p .x{display:none}":                                 "seen secret",
		".x:hover{display:none}":                             "seen secret",
		".x{color:red}":                                      "seen secret",
		"body{display:none}html{opacity:0}":                  "seen secret",
		"*{font-size:12px}":                                  "seen secret",
		strings.Repeat(".q{display:none}", 100) + ".xx{a:b}": "seen secret",
	} {
		if got := textOf(t, "<style>"+sheet+"</style><div><p>seen</p><aside id=i class='y x'>secret</aside></div>"); got != want {
			t.Errorf("%s: %q, want %q", sheet, got, want)
		}
	}
	// The element's own style is stronger, but not than !important.
	for style, want := range map[string]string{"display:block": "seen secret", "color:red": "seen"} {
		if got := textOf(t, "<style>.x{display:none}</style><p>seen</p><p class=x style='"+style+"'>secret</p>"); got != want {
			t.Errorf("%s: %q", style, got)
		}
	}
	if got := textOf(t, "<style>.x{display:none!important}</style><p>seen</p><p class=x style='display:block'>secret</p>"); got != "seen" {
		t.Error(got)
	}
	if got := textOf(t, "<style media=print>.x{display:none}</style><p>seen</p><p class=x>secret</p>"); got != "seen secret" {
		t.Error(got)
	}
}

// A page made to be slow is read in bounded time.
func TestStyleSheetsOfAnySize(t *testing.T) {
	var b strings.Builder
	b.WriteString("<style>")
	for range 20_000 {
		b.WriteString("a a a a a a a a{display:none}")
	}
	b.WriteString("</style>" + strings.Repeat("<a>", 300) + strings.Repeat("<b><a>x</a></b>", 500))
	begin := time.Now()
	textOf(t, b.String())
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
}

func FuzzStyleSheet(f *testing.F) {
	f.Add(".x{display:none}")
	f.Add("@media screen{.x,#i>p{display:none!important}")
	f.Add("}{;:.x{")
	f.Fuzz(func(t *testing.T, text string) {
		s := &sheet{rules: map[string][]*rule{}}
		s.read(text)
		if s.n > maxRules {
			t.Errorf("%d rules", s.n)
		}
	})
}
