package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The text that a mutant changes is there exactly once: a change of that text must change the mutant, too.
func TestEveryMutantFindsItsText(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutants, gangMutants, dataMutants, operatorMutants) {
		src, err := os.ReadFile(filepath.Join("..", "..", "..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), m.old); n != 1 {
			t.Errorf("%s: its text is %d times in %s", m.name, n, m.file)
		}
	}
}

// A woven program is as written unless the environment names a mutant, and then it is that one.
func TestWeave(t *testing.T) {
	t.Parallel()
	src := `package main

import "fmt"

const greeting = "hello"

type num int

func (n num) add(more ...int) (sum int) {
	for _, m := range more {
		sum += m
	}
	return sum + int(n)
}

func generic[T any](v T) T { return v }

func show() {
	fmt.Println(greeting, num(1).add(2, 3))
}

func main() { show() }
`
	ms := []mutant{
		{name: "no-sum", old: "		sum += m\n", new: "		sum = m\n"},
		{name: "times", old: "	return sum + int(n)\n", new: "	return sum * int(n) * 10\n"},
		{name: "bye", old: `"hello"`, new: `"bye"`},
		{name: "silent", old: "	fmt.Println(greeting, num(1).add(2, 3))\n", new: ""},
		{name: "generic", old: "return v }", new: "var w T; return w }"},
	}
	woven, pkg, alone, err := weave(src, ms)
	if err != nil || len(alone) != 1 || alone[0].name != "generic" {
		t.Fatalf("alone: %v, %v", alone, err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": woven, "play.go": inPlayFile(pkg), "go.mod": "module m\n\ngo 1.24\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "m", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s", out, woven)
	}
	for name, want := range map[string]string{
		"": "hello 6\n", "no-sum": "hello 4\n", "times": "hello 50\n", "bye": "bye 6\n", "silent": "",
	} {
		cmd := exec.Command(filepath.Join(dir, "m"))
		cmd.Env = append(os.Environ(), envMutant+"="+name)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s prints %q, want %q: %v", name, out, want, err)
		}
	}
}
