// Command mutants breaks the rules of money one by one and shows that the tests notice: a test that cannot fail proves
// nothing. Each mutant is one mechanical edit that the compiler is shown in place of the file (go test -overlay): the
// working tree is never touched. A mutant whose text is no longer there, or that does not compile, is a failure too.
//
// Usage, from the root of the repository: go run ./internal/testing/model/mutants [name…]
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is one broken rule.
type mutant struct {
	name     string
	rule     string // what it breaks
	file     string
	old, new string  // old is there exactly once
	by       []suite // each of these must notice; none: bills
}

// suite are tests of one package.
type suite struct{ pkg, run string }

// bills is the proof of the bills itself.
var bills = suite{"./internal/testing/model", "TestEveryBillIsTheOracles"}

func main() {
	survivors := 0
	for _, m := range slices.Concat(mutants, gangMutants) {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], m.name) {
			continue
		}
		start := time.Now()
		how, err := m.try()
		if err != nil {
			survivors++
			fmt.Printf("FAIL  %-24s %s: %v\n", m.name, m.rule, err)
			continue
		}
		fmt.Printf("ok    %-24s %s: %s (%.0f s)\n", m.name, m.rule, how, time.Since(start).Seconds())
	}
	if survivors > 0 {
		fmt.Printf("%d mutants were not caught\n", survivors)
		os.Exit(1)
	}
}

// try reports how the mutant was caught.
func (m mutant) try() (how string, err error) {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return "", fmt.Errorf("its text is %d times in %s: bring the mutant up to date", n, m.file)
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	abs, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {abs: changed}})
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		changed: strings.Replace(string(src), m.old, m.new, 1),
		overlay: string(spec),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	by := m.by
	if by == nil {
		by = []suite{bills}
	}
	for _, s := range by {
		said, err := s.notice(dir, overlay)
		if err != nil {
			return "", err
		}
		how = strings.TrimPrefix(how+"; "+said, "; ")
	}
	return how, nil
}

// notice runs the suite on what the compiler is shown and reports what it says against it.
func (s suite) notice(dir, overlay string) (said string, err error) {
	binary := filepath.Join(dir, "tests")
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary,
		s.pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %s", out)
	}
	test := exec.Command(binary, "-test.run", s.run, "-test.timeout", "5m")
	test.Dir = s.pkg
	test.Env = append(os.Environ(), "MUSTER_PROOF_SECONDS=400000")
	out, err := test.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("survived %s %s", s.pkg, s.run)
	}
	for line := range strings.Lines(string(out)) {
		if _, said, ok := strings.Cut(line, "_test.go:"); ok && !strings.Contains(line, ": seed ") {
			_, said, _ = strings.Cut(said, ": ")
			return fmt.Sprintf("%.100s", strings.TrimSpace(said)), nil
		}
	}
	return "", fmt.Errorf("failed without saying why: %s", out)
}
