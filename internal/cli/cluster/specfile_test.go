package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func TestReadSpec_YAML(t *testing.T) {
	t.Parallel()
	var got client.Spec
	err := readSpec("train.yaml", []byte(`
# a training
name: train
nodes: 2
gpus_per_node: 4
gpu: gpu_model=H100 vram_gb>=80
image: pytorch/pytorch:2.4.0
command: [python, train.py, --epochs, "3"]
env: {EPOCHS: 3, DEBUG: true, DAY: 2026-01-01}
labels:
  team: vision
ports:
  - port: 8888
    protocol: http
budget: 20
max_price_per_hour: 57.60
max_duration: 2h
network: {scope: fabric, min_gbps: 12.5}
`), &got)
	if err != nil {
		t.Fatal(err)
	}
	budget, price, duration := money.Nano(20_000_000_000), money.Micro(57_600_000), int64(7200)
	want := client.Spec{
		Name: "train", Nodes: 2, GPUsPerNode: 4, GPU: "gpu_model=H100 vram_gb>=80", Image: "pytorch/pytorch:2.4.0",
		Command: []string{"python", "train.py", "--epochs", "3"},
		Env:     map[string]string{"EPOCHS": "3", "DEBUG": "true", "DAY": "2026-01-01"},
		Labels:  map[string]string{"team": "vision"}, Ports: []client.Port{{Port: 8888, Protocol: "http"}},
		Budget: &budget, MaxPricePerHour: &price, MaxDuration: &duration,
		Network: &client.Network{Scope: "fabric", MinGbps: 12.5},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadSpec_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "spec is empty",
		"- a":                                   "spec:1: want fields",
		"name: a\n\nimgae: b":                   `spec:3: there is no field "imgae"; did you mean "image"?`,
		"name: a\nnodes: two":                   "spec:2: nodes: want a whole number",
		"name: a\nnodes: 1.5":                   "spec:2: nodes: want a whole number",
		"name: a\ncommand: python":              "spec:2: command: want a list such as [python, train.py]",
		"name: a\ncommand:\n- a\n-\n":           "spec:4: command[1]: is empty",
		"name: a\ncommand:\n- a\n- [b]":         "spec:4: command[1]: want text, not a list",
		"name: a\n\nbudget: $5":                 `spec:3: budget: want a decimal number such as 12.50, not "$5"`,
		"name: a\nmax_price_per_hour: [1]":      "spec:2: max_price_per_hour: want one value, not a list",
		"name: a\nEnv: {A: 1}":                  `spec:2: there is no field "Env"; did you mean "env"?`,
		"name: a\nNODES: 1":                     `spec:2: there is no field "NODES"; did you mean "nodes"?`,
		"nodes: 1\nenv:\n- A=1\n- HERE":         `spec:4: env[1]: want KEY=VALUE, not "HERE"`,
		"nodes: 1\nenv:\n- name: A\n  value: b": "spec:3: env[0]: want KEY=VALUE, not fields",
		"nodes: 1\nenv: A=1":                    `spec:2: env: want fields KEY: VALUE, or a list of KEY=VALUE, not "A=1"`,
		"nodes: 1\nports: 8080":                 `spec:2: ports: want a list such as [8888/http, 22], not "8080"`,
		"nodes: 1\nports:\n- 8080:80":           `spec:3: ports[0]: want PORT or PORT/http, not "8080:80"`,
		"nodes: 1\nports:\n- 123456":            "spec:3: ports[0]: want PORT",
		"nodes: 1\nmounts:\n- data:/data":       "spec:3: mounts[0]: want fields such as {volume: vol_…, path: /data}",
		"nodes: 1\nmounts:\n- {volume: x}":      "spec:3: mounts[0].volume: ",
		"nodes: 1\nnetwork: fast":               `spec:2: network: want fields (scope, `,
		"nodes: 1\nssh_key_ids:\n- laptop":      "spec:3: ssh_key_ids[0]: ",
		"nodes: 1\n<<: 3":                       "spec:2: <<: want fields",
		"disk_gb: 100GB":                        `spec:1: disk_gb: want a whole number, not "100GB"`,
		"nodes: \"2\"":                          `spec:1: nodes: want a whole number, not "2"`,
		"disk_limited: perhaps":                 `spec:1: disk_limited: want true or false, not "perhaps"`,
		"network: {min_gbps: .nan}":             "spec:1: network.min_gbps: want a number",
		"name: a\nports:\n- {prot: 1}":          `spec:3: there is no field "ports[0].prot"; did you mean "port"?`,
		"name: a\nname: b":                      "spec:2: the field \"name\" stands twice",
		"max_duration: soon":                    "spec:1: max_duration: want whole seconds",
		"name: [":                               "spec: line 1",
		"---\nname: a\n---\nname: b":            "several documents",
		`{"image": `:                            "spec: line",
		"a: &a [1,1]\nb: [*a,*a]":               `there is no field "a"`,
		"env: &e {<<: *e}":                      "spec:",
		strings.Repeat("a: {", 40) + "}":        "spec: ",
		"name: a\nlabels: {a: [1]}":             "spec:2: labels",
		"name: " + strings.Repeat("x", 2e6):     "at most",
	} {
		err := readSpec("spec", []byte(text), new(client.Spec))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// What people paste from files of other tools.
func TestReadSpec_OtherSpellings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]client.Spec{
		"command: [x, --port, 8080, --lr, 1e-3, --on, true, --hex, 0x10]": {Command: []string{"x", "--port", "8080",
			"--lr", "1e-3", "--on", "true", "--hex", "0x10"}},
		"entrypoint: [sleep, 60]":                  {Entrypoint: []string{"sleep", "60"}},
		"name: 3\nimage: 2026-01-01":               {Name: "3", Image: "2026-01-01"},
		"nodes: 0x2\ndisk_limited: yes\nbudget: ~": {Nodes: 2, DiskLimited: true},
		"env:\n- A=1\n- B=x=y\n- C: 3\n- D=":       {Env: map[string]string{"A": "1", "B": "x=y", "C": "3", "D": ""}},
		"labels: [a=b]\nenv: {A: , B: ~}": {Labels: map[string]string{"a": "b"},
			Env: map[string]string{"A": "", "B": ""}},
		"ports:\n- 8888\n- 80/http\n- {port: 22}": {Ports: []client.Port{{Port: 8888, Protocol: "tcp"},
			{Port: 80, Protocol: "http"}, {Port: 22}}},
		"x-e: &e {A: 1, B: 2}\nenv:\n  <<: *e\n  B: 3": {Env: map[string]string{"A": "1", "B": "3"}},
		"x-e: &e {A: 1}\nx-f: &f {A: 2, B: 2}\nenv: {<<: [*e, *f], C: 3}": {Env: map[string]string{"A": "1", "B": "2",
			"C": "3"}},
		"x-base: &b {nodes: 2, gpu: H100}\n<<: *b\nnodes: 4": {Nodes: 4, GPU: "H100"},
		"x-l: &l [a, b]\ncommand: *l\nname: &n train\nproject: *n": {Command: []string{"a", "b"}, Name: "train",
			Project: "train"},
	} {
		var got client.Spec
		if err := readSpec("spec", []byte(text), &got); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q:\n%s", text, d)
		}
	}
}

// Aliases that refer to each other must not cost more than the file is long.
func TestReadSpec_AliasBomb(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		p := string(rune('0' + i - 1))
		bomb += "a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat("*a"+p+",", 8) + "*a" + p +
			"]\n"
	}
	for _, field := range []string{"", "x-z: 1\ncommand: *a8", "env: {<<: *a8}", "network: *a8"} {
		text := strings.ReplaceAll(bomb, "\na", "\nx-a") + field
		err := readSpec("bomb", []byte("x-"+text), new(client.Spec))
		if field != "" && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
