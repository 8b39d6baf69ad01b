// Command mutants breaks the rules of money one by one and shows that the tests notice: a test that cannot fail proves
// nothing. Each mutant is one mechanical edit that the compiler is shown in place of the file (go test -overlay): the
// working tree is never touched. A mutant whose text is no longer there, or that does not compile, is a failure too. So
// is a suite that fails on the unbroken code: it would notice everything.
//
// Nearly all mutants are compiled together, see weave, and the environment says which one a test binary is. What cannot
// be woven is compiled by itself.
//
// Usage, from the root of the repository: go run ./internal/testing/model/mutants [name…]
package main

import (
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

// atOnce is how many mutants are tried at the same time: the tests of one wait for the database while another's
// compute.
const atOnce = 3

func main() {
	var chosen []mutant
	for _, m := range slices.Concat(mutants, gangMutants, quotaMutants, dataMutants, operatorMutants) {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], m.name) {
			continue
		}
		if m.by == nil {
			m.by = []suite{bills}
		}
		chosen = append(chosen, m)
	}
	survivors, err := run(chosen)
	if err != nil {
		fmt.Println("FAIL ", err)
		os.Exit(1)
	}
	if survivors > 0 {
		fmt.Printf("%d of %d mutants were not caught, or suites fail without any\n", survivors, len(chosen))
		os.Exit(1)
	}
	fmt.Printf("%d mutants, each caught\n", len(chosen))
}

// run tries all mutants, and returns how many are not caught or suites fail without any.
func run(chosen []mutant) (failed int, err error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var together, apart []mutant
	for _, m := range chosen {
		if err := m.find(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	b := newBuild(filepath.Join(dir, "woven"))
	if together, apart, err = b.weave(chosen); err != nil {
		return 0, err
	}
	if err := b.compile(together); err != nil {
		return 0, err
	}
	fmt.Printf("%d mutants compiled together (%.0f s)\n", len(together), time.Since(start).Seconds())
	failed = each(suitesOf(together), func(s suite) bool {
		return report("(unbroken)", s.pkg+" "+s.run, func() (string, error) { return "passes", s.passes(b, "") })
	})
	failed += each(together, func(m mutant) bool {
		return report(m.name, m.rule, func() (string, error) { return m.caught(b) })
	})
	for _, m := range apart {
		if !report(m.name, m.rule, func() (string, error) { return m.tryAlone(filepath.Join(dir, m.name)) }) {
			failed++
		}
	}
	return failed, nil
}

// report says how a step ended.
func report(name, what string, f func() (how string, err error)) bool {
	start := time.Now()
	how, err := f()
	if err != nil {
		fmt.Printf("FAIL  %-24s %s: %v\n", name, what, err)
		return false
	}
	fmt.Printf("ok    %-24s %s: %s (%.0f s)\n", name, what, how, time.Since(start).Seconds())
	return true
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

// suitesOf returns the suites of mutants, each once.
func suitesOf(ms []mutant) (out []suite) {
	for _, m := range ms {
		for _, s := range m.by {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// find fails unless the mutant's text is in its file, once.
func (m mutant) find() error {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return fmt.Errorf("%s: its text is %d times in %s: bring the mutant up to date", m.name, n, m.file)
	}
	return nil
}

// tryAlone compiles the mutant by itself, and reports how it was caught. Its suites pass without it, or it has one that
// no other mutant has.
func (m mutant) tryAlone(dir string) (how string, err error) {
	b := newBuild(dir)
	if err := b.change(m); err != nil {
		return "", err
	}
	if err := b.compile([]mutant{m}); err != nil {
		return "", err
	}
	return m.caught(b)
}

// caught reports how each of the mutant's suites noticed it.
func (m mutant) caught(b *build) (how string, err error) {
	for _, s := range m.by {
		said, err := s.notice(b, m.name)
		if err != nil {
			return "", err
		}
		how = strings.TrimPrefix(how+"; "+said, "; ")
	}
	return how, nil
}

// play runs the suite. The first test that fails ends it.
func (s suite) play(b *build, mutant string) (out []byte, err error) {
	test := exec.Command(b.binaries[s.pkg], "-test.run", s.run, "-test.failfast", "-test.timeout", "10m")
	test.Dir = s.pkg
	test.Env = append(os.Environ(), "MUSTER_PROOF_SECONDS=400000", envMutant+"="+mutant)
	return test.CombinedOutput()
}

// passes fails unless the suite passes.
func (s suite) passes(b *build, mutant string) error {
	if out, err := s.play(b, mutant); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// notice reports what the suite says against a mutant.
func (s suite) notice(b *build, mutant string) (said string, err error) {
	out, err := s.play(b, mutant)
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
