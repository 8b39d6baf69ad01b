package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// faces translate between a protocol and the domain's use cases. They hold no transaction and no query.
var faces = []string{"serve/api", "serve/gateway", "serve/hostlink", "web", "cli"}

// TestFacesHaveNoDatabase: a use case, with its transaction, is one method of a domain package. The API, the pages, the
// gateway, the hosts' link and the command line call it.
func TestFacesHaveNoDatabase(t *testing.T) {
	t.Parallel()
	files := 0
	eachSource(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") ||
			!slices.Contains(faces, room(path.Dir(file))) && !strings.HasPrefix(file, "cmd/") {
			return
		}
		files++
		uses := slices.ContainsFunc(importsOf(t, file), func(im string) bool {
			return strings.HasPrefix(im, module+"internal/db") || strings.HasPrefix(im, "github.com/jackc/pgx")
		})
		if uses {
			t.Errorf("%s uses the database: call a method of the domain that owns the use case", file)
		}
	})
	if files < 100 {
		t.Fatalf("only %d files of faces seen: the walk is broken", files)
	}
}
