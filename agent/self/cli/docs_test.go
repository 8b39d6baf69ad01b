package cli

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/docs"
)

// Every muster-agent command that the documentation names exists and has the options that are shown.
func TestDocs_CommandsExist(t *testing.T) {
	t.Parallel()
	pages, err := fs.Glob(docs.FS, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:`(?:sudo )?|^ *(?:sudo )?)muster-agent ([a-z][^`\n]*)")
	seen := 0
	for _, page := range pages {
		text, err := fs.ReadFile(docs.FS, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "on ") { // a drawing
				continue
			}
			seen++
			cmd, rest, err := root().Find(strings.Fields(m[1]))
			if err != nil || !cmd.HasParent() {
				t.Errorf("docs/%s: there is no muster-agent %s (%v)", path.Base(page), m[1], err)
				continue
			}
			for _, word := range rest {
				name, long := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if long && cmd.Flag(name) == nil && !cmd.DisableFlagParsing {
					t.Errorf("docs/%s: muster-agent %s has no option %s", path.Base(page), m[1], word)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d commands: the pages are not read right", seen)
	}
}
