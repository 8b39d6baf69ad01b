package cli

import (
	"strings"
	"testing"
)

// A mistake in the flags ends with exit code 2 and says what is wanted, before a platform is needed.
func TestMistakesInFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"bucket create results":                            "muster bucket create needs --bucket and --endpoint",
		"shared declare lab-nfs --kind nfs":                "muster shared declare needs --quota",
		"volume create data --size 5GiB":                   `--size: want whole gigabytes, such as 100, 100GB or 2TB, not "5GiB"`,
		"cluster list --limit many":                        `--limit: want a whole number, not "many"`,
		"cluster create --min-gbps fast":                   `--min-gbps: want a number, not "fast"`,
		"volume create data --sise 5":                      "did you mean --size?",
		"cluster exec train -i -n -- true":                 "none of the others can be",
		"login https://x.example --sign-up a --with-token": "none of the others can be",
	} {
		var out, errs strings.Builder
		code := tested.Run(t.Context(), strings.Fields(line), []string{"HOME=" + t.TempDir()}, strings.NewReader(""), &out,
			&errs)
		if code != 2 || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "--help") {
			t.Errorf("%s: exit %d, %s; want %q", line, code, errs.String(), want)
		}
	}
}

// What people type from habit is a command here, or the right one is named.
func TestHabits(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"cluster logs train -f":              "you are not logged in",
		"cluster logs -f -n 20 -t train":     "you are not logged in",
		"cluster exec -it train -- bash":     "you are not logged in",
		"cluster exec train -i -t -- python": "you are not logged in",
		"cluster exec -n train -- true":      "you are not logged in",
		"cluster cp -r data train:/b":        "you are not logged in",
		"logs train":                         "did you mean muster cluster logs?",
		"exec train":                         "did you mean muster cluster exec?",
		"cp a train:/b":                      "did you mean muster cluster cp or muster volume cp?",
		"create":                             "see muster --help",
	} {
		var out, errs strings.Builder
		tested.Run(t.Context(), strings.Fields(line), []string{"HOME=" + t.TempDir()}, strings.NewReader(""), &out, &errs)
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%s: %s; want %q", line, errs.String(), want)
		}
	}
}
