package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readEnvText(raw string) (map[string]string, error) {
	got := map[string]string{}
	err := readEnv("x.env", []byte(raw), func(name string) (string, bool) {
		v, ok := map[string]string{"HERE": "from here", "EMPTY": ""}[name]
		return v, ok
	}, func(k, v string) { got[k] = v })
	return got, err
}

func TestEnvFile_IsReadAsItsFormatHasIt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for raw, want := range map[string]map[string]string{
		"":                                           {},
		"\ufeffHF_TOKEN=abc\r\nB=2\r\n":              {"HF_TOKEN": "abc", "B": "2"},
		"\ufeff# c\r\n\r\nA=1":                       {"A": "1"},
		"export A=1\nexport\tB=2\n exportC=3":        {"A": "1", "B": "2", "exportC": "3"},
		"export=1":                                   {"export": "1"},
		"A=\nB=  \nC=\"\"\nD=''\n":                   {"A": "", "B": "", "C": "", "D": ""},
		"A = spaces around \n":                       {"A": "spaces around"},
		"A=a#b\nB=a # c\nC= # c\nD=\"a # b\" #c":     {"A": "a#b", "B": "a", "C": "", "D": "a # b"},
		"A=#fff # c\nB=# c\nC=##\n  # D=1":           {"A": "#fff", "B": "# c", "C": "##"},
		`A="a b"` + "\n" + `B='$HOME "x" \n'`:        {"A": "a b", "B": `$HOME "x" \n`},
		`A="1\n2\t\"q\" \\ \$x \d C:\\Users"`:        {"A": "1\n2\t\"q\" \\ $x \\d C:\\Users"},
		"A=\"-----BEGIN\r\nMII=\r\n-----END\"\nB=2":  {"A": "-----BEGIN\nMII=\n-----END", "B": "2"},
		"A='1\n2'\nB=3":                              {"A": "1\n2", "B": "3"},
		`J={"type": "service_account", "k": "a\nb"}`: {"J": `{"type": "service_account", "k": "a\nb"}`},
		"URL=postgres://u:p@h/db?a=b&c=$d":           {"URL": "postgres://u:p@h/db?a=b&c=$d"},
		"A=it's\nB=a\"b\"":                           {"A": "it's", "B": `a"b"`},
		"A=1\nA=2":                                   {"A": "2"},
		"HERE\nexport EMPTY # c":                     {"HERE": "from here", "EMPTY": ""},
		"A=" + long + "\nB='" + long + "'":           {"A": long, "B": long},
		"A=häß 🙂":                                    {"A": "häß 🙂"},
		"A=back\\slash\\n":                           {"A": `back\slash\n`},
	} {
		if got, err := readEnvText(raw); err != nil || !maps.Equal(got, want) {
			t.Errorf("%.60q: %v\n%s", raw, err, cmp.Diff(want, got))
		}
	}
}

func TestEnvFile_ErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"A=1\nUNSET":              "x.env:2: want KEY=VALUE: UNSET is not set in your environment",
		"A=1\n\nnot a line":       "x.env:3: want KEY=VALUE",
		"A: 1":                    "x.env:1: want KEY=VALUE",
		"A=\"1\n2\"\n1X=2":        `x.env:3: "1X" is not a variable name`,
		"a-b=1":                   `x.env:1: "a-b" is not a variable name`,
		"=1":                      `x.env:1: "" is not a variable name`,
		"A=1\nB=\"open\nC=2\n":    `x.env:2: the quote " of B is not closed`,
		"A='it":                   `x.env:1: the quote ' of A is not closed`,
		"A=\"a\"b":                "x.env:1: A: text follows the closing quote",
		"A=\"a\"#b":               "x.env:1: A: text follows the closing quote",
		"A=1\r\nB=\xff":           "x.env:2: is not UTF-8",
		"\xff\xfeA\x00=\x001\x00": "x.env is in UTF-16",
	} {
		if _, err := readEnvText(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
}

// The help has the escapes that the reader knows.
func TestEnvFile_HelpHasTheEscapes(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Backward([]byte(strings.TrimSuffix(escaped, "`"))) {
		if !strings.Contains(envFormat, `\`+string(c)) {
			t.Errorf(`\%c is not in the help`, c)
		}
	}
}
