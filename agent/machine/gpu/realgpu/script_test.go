package realgpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// replay runs scripts/test-gpu on a machine whose programs print what those of a machine with an H200 printed. change
// edits the files of that machine.
func replay(t *testing.T, change func(dir string)) (verdicts string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvml-calls.json", "inventory.json", "cuda.json", "doctor.txt", "memory.json",
		"monitor.txt", "nvidia-smi.xml"} {
		b, err := os.ReadFile(filepath.Join(root, "docs/hardware/NVIDIA-H200", name))
		if err != nil {
			t.Fatal(err)
		}
		write("h200/"+name, string(b))
	}
	if change != nil {
		change(filepath.Join(dir, "h200"))
	}
	write("proc/version", "")
	write("bin/muster-agent", "#!/bin/sh\ncase \"$1 $2\" in 'gpu calls') f=nvml-calls.json ;; inv*) f=inventory.json ;; "+
		"doctor*) cat "+dir+"/h200/doctor.txt; exit 1 ;; gpucheck*) f=cuda.json ;; esac\nexec cat "+dir+"/h200/$f\n")
	write("bin/gpuload", "#!/bin/sh\nexec cat "+dir+"/h200/memory.json\n")
	write("bin/gpu.test", "#!/bin/sh\nexec cat "+dir+"/h200/monitor.txt\n")
	write("path/nvidia-smi", "#!/bin/sh\n[ \"$1\" = -L ] || exec cat "+dir+"/h200/nvidia-smi.xml\n")
	write("path/id", "#!/bin/sh\necho 1000\n") // folders and containers of its own need root
	for _, name := range []string{"python3", "docker", "runc", "nvidia-ctk"} {
		write("path/"+name, "#!/bin/sh\nexit 1\n")
	}
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/test-gpu"), filepath.Join(dir, "bin"))
	cmd.Env = append(os.Environ(), "OUT="+out, "MUSTER_TEST_GPU_PROC="+dir+"/proc", "LIMIT=60",
		"PATH="+dir+"/path:/usr/sbin:/usr/bin:/sbin:/bin")
	log, err := cmd.CombinedOutput()
	b, readErr := os.ReadFile(filepath.Join(out, "verdicts.txt"))
	if readErr != nil {
		t.Fatalf("%v: %v\n%s", err, readErr, log)
	}
	return string(b), err == nil
}

// The script judges each claim by what the programs print, not by their end alone.
func TestScript_Verdicts(t *testing.T) {
	t.Parallel()
	all, ok := replay(t, nil)
	line := regexp.MustCompile(`^(proven|refuted|not testable here) +\S`)
	for l := range strings.Lines(all) {
		if !line.MatchString(l) {
			t.Errorf("not a verdict: %q", l)
		}
	}
	edit := func(name, old, text string) func(string) {
		return func(dir string) {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.Contains(string(b), old) {
				t.Fatalf("%s: %v", name, err)
			}
			b = []byte(strings.Replace(string(b), old, text, 1))
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	refuted := map[string]func(string){
		"every call of NVML that the agent makes is answered": func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, "nvml-calls.json"), []byte("[]"), 0o644)
		},
		"every GPU stores, copies and computes": edit("cuda.json", `"took_ms"`, `"failure":{"kind":"cuda"},"took_ms"`),
		"an idle GPU looks idle":                edit("monitor.txt", "--- PASS: TestIdle", "--- FAIL: TestIdle"),
		"the GPU's memory holds":                edit("memory.json", `"wrong": 0`, `"wrong": 3`),
		"nvidia-smi and the inventory agree": edit("nvidia-smi.xml", "<product_name>NVIDIA H200",
			"<product_name>NVIDIA H100"),
	}
	changed, passed := replay(t, func(dir string) {
		for _, change := range refuted {
			change(dir)
		}
		edit("monitor.txt", "--- PASS: TestBusy", "panic: test timed out")(dir)
	})
	if !ok || passed {
		t.Errorf("refuted claims fail the script, others do not: %t, %t\n%s", ok, passed, all)
	}
	for claim := range refuted {
		if !strings.Contains(all, "proven              "+claim) || strings.Count(changed, "refuted             "+claim) != 1 {
			t.Errorf("%s:\n%s\n%s", claim, all, changed)
		}
	}
	if !strings.Contains(changed, "not testable here   a busy GPU") {
		t.Errorf("a test that did not end:\n%s", changed)
	}
}
