// Command mutants breaks the rules of money one by one and shows that the tests notice: a test that cannot fail proves
// nothing. Each mutant is one mechanical edit that the compiler is shown in place of the file (go test -overlay): the
// working tree is never touched. A mutant whose text is no longer there, or that does not compile, is a failure too. So
// is a suite that fails on the unbroken code: it would notice everything.
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
	"sync"
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

// atOnce is how many mutants are tried at the same time: one compiles and links while the tests of another wait for
// the database.
const atOnce = 2

func main() {
	var chosen []mutant
	for _, m := range slices.Concat(mutants, gangMutants) {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], m.name) {
			continue
		}
		if m.by == nil {
			m.by = []suite{bills}
		}
		chosen = append(chosen, m)
	}
	survivors := unbroken(chosen)
	survivors += each(chosen, func(m mutant) bool {
		start := time.Now()
		how, err := m.try()
		if err != nil {
			fmt.Printf("FAIL  %-24s %s: %v\n", m.name, m.rule, err)
			return false
		}
		fmt.Printf("ok    %-24s %s: %s (%.0f s)\n", m.name, m.rule, how, time.Since(start).Seconds())
		return true
	})
	if survivors > 0 {
		fmt.Printf("%d of %d mutants were not caught\n", survivors, len(chosen))
		os.Exit(1)
	}
	fmt.Printf("%d mutants, each caught\n", len(chosen))
}

// each calls f with all of what, atOnce at a time, and returns how often it returned false.
func each[T any](what []T, f func(T) bool) (failed int) {
	work := make(chan T)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for x := range work {
				if !f(x) {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	for _, x := range what {
		work <- x
	}
	close(work)
	workers.Wait()
	return failed
}

// unbroken runs the suites of mutants on the code as it is, and returns how many packages have one that fails.
func unbroken(of []mutant) (failed int) {
	suites := map[string][]suite{}
	var pkgs []string
	for _, m := range of {
		for _, s := range m.by {
			if suites[s.pkg] == nil {
				pkgs = append(pkgs, s.pkg)
			}
			if !slices.Contains(suites[s.pkg], s) {
				suites[s.pkg] = append(suites[s.pkg], s)
			}
		}
	}
	return each(pkgs, func(pkg string) bool {
		start := time.Now()
		if err := passes(pkg, suites[pkg]); err != nil {
			fmt.Printf("FAIL  %-24s %s: %v\n", "(unbroken)", pkg, err)
			return false
		}
		fmt.Printf("ok    %-24s %s passes (%.0f s)\n", "(unbroken)", pkg, time.Since(start).Seconds())
		return true
	})
}

// passes reports which of the suites of one package does not pass.
func passes(pkg string, suites []suite) error {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := compile(dir, "", pkg)
	if err != nil {
		return err
	}
	for _, s := range suites {
		if out, err := s.play(binary); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.run, err, out)
		}
	}
	return nil
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
	binaries := map[string]string{}
	for _, s := range m.by {
		if binaries[s.pkg] == "" {
			if binaries[s.pkg], err = compile(dir, overlay, s.pkg); err != nil {
				return "", err
			}
		}
		said, err := s.notice(binaries[s.pkg])
		if err != nil {
			return "", err
		}
		how = strings.TrimPrefix(how+"; "+said, "; ")
	}
	return how, nil
}

// compile makes the test binary of a package, and returns its path. It has no symbols for debuggers: the linker would
// work on them for longer than many a suite runs.
func compile(dir, overlay, pkg string) (binary string, err error) {
	binary = filepath.Join(dir, filepath.Base(pkg)+".test")
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if out, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %s", out)
	}
	return binary, nil
}

// play runs the suite. The first test that fails ends it.
func (s suite) play(binary string) (out []byte, err error) {
	test := exec.Command(binary, "-test.run", s.run, "-test.failfast", "-test.timeout", "10m")
	test.Dir = s.pkg
	test.Env = append(os.Environ(), "MUSTER_PROOF_SECONDS=400000")
	return test.CombinedOutput()
}

// notice reports what the suite says against what was compiled.
func (s suite) notice(binary string) (said string, err error) {
	out, err := s.play(binary)
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
