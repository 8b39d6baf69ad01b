package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tests compare structs with go-cmp, whose failure says what differs; slices and maps of simple values with the
// standard library.
func TestTestsCompareWithGoCmp(t *testing.T) {
	t.Parallel()
	seen := 0
	eachSource(t, func(file string) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		seen++
		b, err := os.ReadFile(filepath.Join("..", "..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "reflect."+"DeepEqual(") {
			t.Errorf("%s compares with reflect.DeepEqual: use cmp.Diff, slices.Equal or maps.Equal", file)
		}
	})
	if seen < 300 {
		t.Fatalf("only %d test files seen: the walk is broken", seen)
	}
}
