package archtest

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unchecked are reads of the whole platform in packages that know no principals.
var unchecked = regexp.MustCompile(`\b(ledger\.(Check|Search)|audit\.Search|tax\.ReportOf)\(`)

// TestPlatformReadsCheckThePrincipal: the API and the pages read the whole platform through package statement, which
// refuses every principal that is not a platform operator, whatever the route let through.
func TestPlatformReadsCheckThePrincipal(t *testing.T) {
	t.Parallel()
	seen := false
	eachSource(t, func(file string) {
		if r := room(path.Dir(file)); (r != "serve/api" && r != "web") || strings.HasSuffix(file, "_test.go") {
			return
		}
		text := read(t, filepath.Join("..", "..", "..", file))
		if m := unchecked.FindString(text); m != "" {
			t.Errorf("%s calls %s…): use package statement, which checks who asks", file, m)
		}
		seen = seen || strings.Contains(text, "tatements.SearchAudit(")
	})
	if !seen {
		t.Fatal("no checked read seen: the walk is broken")
	}
}
