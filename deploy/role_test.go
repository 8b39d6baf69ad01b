package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const role = "ansible/roles/muster_agent"

func parse[T any](t *testing.T, name string) T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(role, name))
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := yaml.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// keywords are what a task may hold beside its module.
var keywords = []string{"name", "when", "vars", "register", "changed_when", "failed_when", "no_log", "notify", "listen"}

// The role is read as Ansible would: every file parses, every task has a name and one module, every notice a handler.
// Ansible itself is not run.
func TestRoleParses(t *testing.T) {
	t.Parallel()
	heard := map[string]bool{}
	var notified []string
	for _, file := range []string{"tasks/main.yml", "tasks/install.yml", "tasks/remove.yml", "handlers/main.yml"} {
		tasks := parse[[]map[string]any](t, file)
		if len(tasks) == 0 {
			t.Errorf("%s holds no tasks", file)
		}
		for _, task := range tasks {
			name, _ := task["name"].(string)
			var modules []string
			for key := range task {
				if strings.HasPrefix(key, "ansible.builtin.") {
					modules = append(modules, key)
				} else if !slices.Contains(keywords, key) {
					t.Errorf("%s: %q: unknown key %s", file, name, key)
				}
			}
			if name == "" || len(modules) != 1 {
				t.Errorf("%s: %q has modules %v", file, name, modules)
			}
			if included, ok := task["ansible.builtin.include_tasks"].(string); ok {
				if _, err := os.Stat(filepath.Join(role, "tasks", included)); err != nil {
					t.Error(err)
				}
			}
			if to, ok := task["notify"].(string); ok {
				notified = append(notified, to)
			}
			if to, ok := task["listen"].(string); ok {
				heard[to] = true
			}
		}
	}
	for _, n := range notified {
		if !heard[n] {
			t.Errorf("nothing handles %q", n)
		}
	}
	parse[map[string]any](t, "meta/main.yml")
}

// Every variable that is used has a default or is set by a task; every default is used and in the README.
func TestRoleVariables(t *testing.T) {
	t.Parallel()
	known := parse[map[string]any](t, "defaults/main.yml")
	readme, err := os.ReadFile(filepath.Join(role, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	used, set := map[string]bool{}, maps.Clone(known)
	files, err := filepath.Glob(filepath.Join(role, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bmuster_agent_[a-z_0-9]+`)
	sets := regexp.MustCompile(`(?m)^\s+(?:register: )?(muster_agent_[a-z]+)(?::|$)`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(filepath.Dir(f)) == "defaults" {
			continue
		}
		for _, m := range sets.FindAllStringSubmatch(string(b), -1) {
			set[m[1]] = true
		}
		for _, n := range names.FindAllString(string(b), -1) {
			used[n] = true
		}
	}
	for n := range used {
		if _, ok := set[n]; !ok {
			t.Errorf("%s is used and set nowhere", n)
		}
	}
	for n := range known {
		if !used[n] {
			t.Errorf("%s has a default and is not used", n)
		}
		if !strings.Contains(string(readme), "`"+n+"`") {
			t.Errorf("the README does not tell of %s", n)
		}
	}
	installer, _ := known["muster_agent_installer"].(string)
	if _, err := os.Stat(filepath.Join(role, strings.TrimPrefix(installer, "{{ role_path }}/"))); err != nil {
		t.Error(err)
	}
}
