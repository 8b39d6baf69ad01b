package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The text that a mutant changes is there exactly once: whoever changes it brings the mutant up to date.
func TestEveryMutantFindsItsText(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutants, gangMutants) {
		src, err := os.ReadFile(filepath.Join("..", "..", "..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), m.old); n != 1 {
			t.Errorf("%s: its text is %d times in %s", m.name, n, m.file)
		}
	}
}
