package archtest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedCodeIsFresh compares what the generators read and wrote with what they noted when they ran last. It
// needs no generator; `make lint` runs them.
func TestGeneratedCodeIsFresh(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	f, err := os.Open(filepath.Join(root, "tools", "generated.sum"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	noted := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		sum, name, ok := strings.Cut(sc.Text(), "  ")
		if !ok {
			t.Fatalf("tools/generated.sum: %q", sc.Text())
		}
		noted[name] = sum
	}
	seen := 0
	for _, dir := range []string{"sqlc.yaml", "migrations", "internal/db/queries", "internal/db/dbq", "web"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, p)
			if err != nil || !generates(filepath.ToSlash(rel)) {
				return err
			}
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			if seen++; noted[filepath.ToSlash(rel)] != hex.EncodeToString(sum[:]) {
				t.Errorf("%s changed since the generators ran: run make generate and commit", rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen != len(noted) {
		t.Errorf("%d files generate or are generated, %d were noted: run make generate and commit", seen, len(noted))
	}
}

// generates reports whether a file is read or written by a generator.
func generates(file string) bool {
	switch {
	case file == "sqlc.yaml", strings.HasSuffix(file, ".sql"), strings.HasSuffix(file, ".templ"),
		strings.HasSuffix(file, "_templ.go"):
		return true
	}
	return strings.HasPrefix(file, "internal/db/dbq/") && strings.HasSuffix(file, ".go")
}
