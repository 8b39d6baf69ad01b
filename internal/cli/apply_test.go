package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	p.sell(8, "2.00")
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	file := filepath.Join(t.TempDir(), "train.yaml")
	write := func(spec string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name: train\nnodes: 1\ngpus_per_node: 4\nimage: x/y:1\ngpu: gpu_model=H100\nenv: {A: 1}\nmax_duration: 2h\n")
	if out := p.ok("cluster", "plan", "-f", file); !strings.Contains(out,
		"A new cluster would be rented for\n8.00 per hour") {
		t.Errorf("plan:\n%s", out)
	}
	quote := p.json("cluster", "plan", "-f", file)["quote"].(map[string]any)["id"].(string)
	if state := p.json("quote", "show", quote)["state"]; state != "returned" {
		t.Errorf("the plan's quote is %v: it claims GPUs", state)
	}
	first := p.json("cluster", "apply", "-f", file)["id"]
	if out := p.ok("cluster", "apply", "-f", file); !strings.Contains(out, "there is nothing to do") {
		t.Errorf("applied twice:\n%s", out)
	}
	if ids := p.ok("cluster", "list", "-o", "name"); ids != first.(string)+"\n" {
		t.Errorf("clusters after applying twice:\n%s", ids)
	}

	write("name: train\nnodes: 1\ngpus_per_node: 2\nimage: x/y:1\ngpu: gpu_model=H100\nenv: {A: 1, B: " +
		"2}\nmax_duration: 2h\n")
	out := p.ok("cluster", "plan", "-f", file)
	for _, want := range []string{"differs from the file", "gpus_per_node  4", "env.B", "4.00 per hour"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the plan:\n%s", want, out)
		}
	}
	if r := p.run("", "cluster", "apply", "-f", file); r.code != 1 || !strings.Contains(r.errs, "--replace") ||
		!strings.Contains(r.errs, "env.B, gpus_per_node") {
		t.Errorf("replaced unasked: exit %d %s%s", r.code, r.out, r.errs)
	}
	if r := p.run("", "cluster", "apply", "-f", file, "--replace", "--curl"); r.code != 0 ||
		!strings.Contains(r.errs, "curl -X POST") {
		t.Errorf("--curl: exit %d %s", r.code, r.errs)
	}
	second := p.json("cluster", "apply", "-f", file, "--replace")
	if second["id"] == first || second["spec"].(map[string]any)["gpus_per_node"] != 2.0 {
		t.Errorf("%v", second)
	}
	if state := p.json("cluster", "show", first.(string))["state"]; state == "running" || state == "placed" {
		t.Errorf("the old cluster is %v", state)
	}
	if r := p.run("", "cluster", "apply"); r.code != 2 || !strings.Contains(r.errs, "-f FILE") {
		t.Errorf("without a file: exit %d %s", r.code, r.errs)
	}
}

// Several applies of a file at the same time rent one cluster.
func TestApply_AtTheSameTime(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	p.sell(8, "2.00")
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	file := filepath.Join(t.TempDir(), "train.yaml")
	if err := os.WriteFile(file, []byte("name: train\nimage: x/y:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, a cluster with the name has ended
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if r := p.run("", "cluster", "apply", "-f", file); r.code != 0 {
					t.Errorf("exit %d: %s", r.code, r.errs)
				}
			})
		}
		all.Wait()
		live := 0
		for _, c := range p.json("cluster", "list")["items"].([]any) {
			if c.(map[string]any)["state"] == "provisioning" {
				live++
			}
		}
		if live != 1 {
			t.Fatalf("%d clusters run", live)
		}
		p.ok("cluster", "release", "train")
	}
}

// A price depends on no image; a rental does.
func TestQuoteWithoutImage(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	p.sell(8, "2.00")
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	out := p.ok("quote", "--gpus", "4", "--gpu", "gpu_model=H100")
	if !strings.Contains(out, "8.00 per hour") || !strings.Contains(out, "--image IMAGE") {
		t.Errorf("quote:\n%s", out)
	}
	q := p.json("quote", "--gpus", "2")["id"].(string)
	if r := p.run("", "cluster", "create", "--quote", q); r.code != 2 || !strings.Contains(r.errs, "image") {
		t.Errorf("rented without an image: exit %d %s", r.code, r.errs)
	}
	p.ok("cluster", "create", "--quote", q, "--image", "x/y:1")
}
