package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// build is test binaries of what the compiler is shown in place of some files.
type build struct {
	dir      string
	replace  map[string]string // absolute paths, as go's -overlay has them
	binaries map[string]string // by package
}

func newBuild(dir string) *build { return &build{dir, map[string]string{}, map[string]string{}} }

// show puts a text in the place of a file, which need not exist.
func (b *build) show(file, text string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	b.replace[abs] = filepath.Join(b.dir, fmt.Sprintf("%d-%s", len(b.replace), filepath.Base(file)))
	return os.WriteFile(b.replace[abs], []byte(text), 0o600)
}

// change shows one mutant.
func (b *build) change(m mutant) error {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	return b.show(m.file, strings.Replace(string(src), m.old, m.new, 1))
}

// weave shows the files of mutants woven, and returns which mutants are in them, and which are not.
func (b *build) weave(ms []mutant) (together, apart []mutant, err error) {
	files := map[string][]mutant{}
	var names []string
	for _, m := range ms {
		if files[m.file] == nil {
			names = append(names, m.file)
		}
		files[m.file] = append(files[m.file], m)
	}
	for _, file := range names {
		if filepath.Ext(file) != ".go" {
			apart = append(apart, files[file]...)
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		woven, pkg, alone, err := weave(string(src), files[file])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := b.show(file, woven); err != nil {
			return nil, nil, err
		}
		if err := b.show(filepath.Join(filepath.Dir(file), "mutant_in_play.go"), inPlayFile(pkg)); err != nil {
			return nil, nil, err
		}
		apart = append(apart, alone...)
		for _, m := range files[file] {
			if !slices.ContainsFunc(alone, func(a mutant) bool { return a.name == m.name }) {
				together = append(together, m)
			}
		}
	}
	return together, apart, nil
}

// compile makes the test binaries of the mutants' suites. They have no symbols for debuggers: the linker would work on
// them for longer than many a suite runs.
func (b *build) compile(ms []mutant) error {
	spec, err := json.Marshal(map[string]any{"Replace": b.replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(overlay, spec, 0o600); err != nil {
		return err
	}
	for _, s := range suitesOf(ms) {
		if b.binaries[s.pkg] != "" {
			continue
		}
		binary := filepath.Join(b.dir, fmt.Sprintf("%d.test", len(b.binaries)))
		out, err := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary,
			s.pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("does not compile: %s", out)
		}
		b.binaries[s.pkg] = binary
	}
	return nil
}
