package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// A TypeScript and a Python client are made from the document that the platform serves, and each rents a cluster:
// offers, quote, rent, wait, usage, release. Both read a refusal as a typed problem.
func TestGeneratedClientsRent(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	document := get(t, p.URL+"/api/v1/openapi.json")
	for language, prepare := range map[string]func(t *testing.T, dir string) []string{
		"TypeScript": typescriptClient, "Python": pythonClient,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			r := p.renter(t, 10*money.Unit)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o600); err != nil {
				t.Fatal(err)
			}
			program := prepare(t, dir)
			out := runIn(t, dir, append(program, p.URL, r.token, p.DemoImage)...)
			var rented struct {
				ID      string  `json:"id"`
				Price   string  `json:"price"`
				Seconds float64 `json:"seconds"`
				Code    string  `json:"code"`
			}
			if err := json.Unmarshal([]byte(out), &rented); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			page, err := r.Clusters.List(t.Context(), client.ClustersQuery{})
			if err != nil || len(page.Items) != 1 {
				t.Fatalf("%d clusters: %v", len(page.Items), err)
			}
			c := r.await(t, page.Items[0], client.Released)
			if c.ID.String() != rented.ID || c.Spec.Nodes != 2 || c.PricePerSecond.String() != rented.Price {
				t.Errorf("the program rented %+v, the platform has %+v", rented, c)
			}
			if rented.Code != string(fault.NoCapacity) {
				t.Errorf("128 nodes were refused with the code %q", rented.Code)
			}
		})
	}
}

// typescriptClient makes and compiles the TypeScript program in a folder that has openapi.json. A type error fails.
func typescriptClient(t *testing.T, dir string) []string {
	t.Helper()
	tools := strings.TrimSpace(runIn(t, "../../..", "scripts/openapi-tools"))
	modules := filepath.Join(tools, "node_modules")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "testdata/clients/rent.ts", filepath.Join(dir, "rent.ts"))
	copyFile(t, "testdata/clients/tsconfig.json", filepath.Join(dir, "tsconfig.json"))
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, filepath.Join(modules, ".bin/openapi-typescript"), "openapi.json", "--output", "schema.ts")
	runIn(t, dir, filepath.Join(modules, ".bin/tsc"))
	return []string{"node", "rent.js"}
}

// pythonClient makes the Python client in a folder that has openapi.json.
func pythonClient(t *testing.T, dir string) []string {
	t.Helper()
	generator, err := filepath.Abs("../../../tools/openapi/python.py")
	if err != nil {
		t.Fatal(err)
	}
	module := runIn(t, dir, "python3", generator, "openapi.json")
	if err := os.WriteFile(filepath.Join(dir, "muster.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "testdata/clients/rent.py", filepath.Join(dir, "rent.py"))
	return []string{"python3", "rent.py"}
}

// runIn runs a command in a folder and returns what it printed.
func runIn(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	var failed strings.Builder
	cmd.Dir, cmd.Stderr = dir, &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command[0], err, out, failed.String())
	}
	return string(out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// get returns the body of a page that is open to all.
func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, res.Status, err)
	}
	return body
}
