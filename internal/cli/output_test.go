package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func TestOutputFormats(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	h := p.sell(8, "2.00")
	if out := p.ok("host", "list", "-o", "name"); out != h+"\n" {
		t.Errorf("names of a page: %q", out)
	}
	if out := p.ok("host", "show", h, "-o", "name"); out != h+"\n" {
		t.Errorf("name of one: %q", out)
	}
	out := p.ok("host", "show", h, "-o", "yaml")
	for _, want := range []string{"id: " + h + "\n", "offers:\n", "gpu_model: NVIDIA H100 80GB HBM3\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if regexp.MustCompile(`\{[^}]`).MatchString(out) { // an empty map is {}
		t.Errorf("YAML in flow style:\n%s", out)
	}
	narrow, wide := p.ok("offers"), p.ok("offers", "-o", "wide")
	if strings.Contains(narrow, "DRIVER") || !strings.Contains(wide, "DRIVER") {
		t.Errorf("columns:\n%s\n%s", narrow, wide)
	}
	if v := p.json("version"); v["version"] != "test" || v["os"] == "" {
		t.Errorf("version: %v", v)
	}
	if r := p.run("", "billing", "balance", "-o", "name"); r.code != 2 || !strings.Contains(r.errs, "no ids") {
		t.Errorf("names of what has none: exit %d %s", r.code, r.errs)
	}
}

// With --curl a command shows its requests with neither the token nor a password in them, and changes nothing.
func TestCurl(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	h := p.sell(8, "2.00")
	r := p.run("", "host", "drain", h, "--curl")
	if r.code != 0 || r.out != "" || !strings.Contains(r.errs, "curl -X POST '"+p.url+"/api/v1/hosts/"+h) ||
		!strings.Contains(r.errs, `-H "Authorization: Bearer $MUSTER_TOKEN"`) || strings.Contains(r.errs, "muster_pat_") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.errs)
	}
	if state := p.json("host", "show", h)["state"]; state != "active" {
		t.Errorf("the host was drained: %v", state)
	}
	r = p.run("old horse battery\nnew horse battery\n", "account", "password", "--curl")
	if r.code != 0 || strings.Contains(r.errs, "horse") || !strings.Contains(r.errs, "curl -X PUT") {
		t.Errorf("exit %d\n%s", r.code, r.errs)
	}
	if r = p.run("", "offers", "--curl"); r.code != 0 || !strings.Contains(r.out, "H100") ||
		!strings.Contains(r.errs, "curl '"+p.url+"/api/v1/offers") {
		t.Errorf("a read: exit %d\n%s%s", r.code, r.out, r.errs)
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("correct horse battery\n", "login", p.url, "--sign-up", "bob@example.com", "--profile",
		"work"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.errs)
	}
	if out := p.ok("whoami"); !strings.Contains(out, "bob@example.com") {
		t.Errorf("the latest login is not in use:\n%s", out)
	}
	if out := p.ok("whoami", "--profile", "default"); !strings.Contains(out, "ada@example.com") {
		t.Errorf("--profile is ignored:\n%s", out)
	}
	p.ok("profile", "use", "default")
	if out := p.ok("profile", "list"); !regexp.MustCompile(`default +http\S+ +current\nwork +http\S+\n`).MatchString(out) {
		t.Errorf("profiles:\n%s", out)
	}
	raw, err := os.ReadFile(filepath.Join(p.home, ".config", "muster", "login.json"))
	if err != nil {
		t.Fatal(err)
	}
	var stored base.Logins
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	p.ok("logout", "--profile", "work", "--revoke")
	if out := p.ok("whoami"); !strings.Contains(out, "ada@example.com") {
		t.Errorf("the other login is gone, too:\n%s", out)
	}
	if r := p.run("", "whoami", "--profile", "work"); r.code != 1 || !strings.Contains(r.errs, "no profile") {
		t.Errorf("after the logout: exit %d %s", r.code, r.errs)
	}
	revoked := []string{"MUSTER_SERVER=" + p.url, "MUSTER_TOKEN=" + stored.Profiles["work"].Token}
	if r := p.runWith(revoked, "", "whoami"); r.code != 1 {
		t.Errorf("the token still works: exit %d %s", r.code, r.out)
	}
}

// A login stored by a version without profiles is the default profile.
func TestOldLoginFile(t *testing.T) {
	t.Parallel()
	seen := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(srv.Close)
	p := &testPlatform{t: t, home: t.TempDir()}
	dir := filepath.Join(p.home, ".config", "muster")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "login.json"), []byte(`{"server":"`+srv.URL+`","token":"old"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	p.run("", "whoami")
	if seen != "Bearer old" {
		t.Errorf("sent %q", seen)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	h := p.sell(8, "2.00")
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	p.ok("cluster", "create", "--name", "train", "--project", "vision", "--gpus", "1", "--image", "x/y:1")
	p.ok("cluster", "create", "--name", "old", "--gpus", "1", "--image", "x/y:1")
	p.ok("cluster", "release", "old")
	budget := p.json("budget", "set", "--project", "speech", "--cap", "5")["id"].(string)
	token := p.json("token", "create", "ci")["id"].(string)
	if r := p.run("correct horse battery\n", "login", p.url, "--sign-up", "eve@example.com", "--profile",
		"eve"); r.code != 0 {
		t.Fatal(r.errs)
	}
	p.ok("profile", "use", "default")
	for line, want := range map[string]string{
		"cluster show ":                     "old\t",
		"cluster release ":                  "train\tprovisioning",
		"cluster exec ":                     "train\t",
		"cluster open ":                     "train\t",
		"clusters ls --state ":              "degraded",
		"cluster create --project ":         "speech\nvision",
		"cluster create --gpu vram_":        "vram_gb",
		"budget remove ":                    budget + "\tspeech",
		"token revoke ":                     token + "\tci",
		"org members role ":                 "ada@example.com\towner",
		"org members role ada@example.com ": "viewer",
		"host enroll --region ":             "eu-test",
		"offers gpu_mo":                     "gpu_model",
		"offers --sort=-rel":                "-reliability",
		"profile use ":                      "default",
		"offers -o y":                       "yaml",
		"cluster exec train -- ":            ":0\n",
		"cluster create --name ":            ":4\n",
		"ssh-key add ":                      ":0\n",
		"cluster list ":                     ":4\n",
		"cluster create --template ":        "jupyterlab",
		"template create x --from-cluster ": "old",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if r := p.run("", args...); r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%s: %q\n%s", line, r.out, r.errs)
		}
	}
	if r := p.run("", "__complete", "cluster", "release", ""); strings.Contains(r.out, "old") {
		t.Errorf("an ended cluster to release:\n%s", r.out)
	}
	p.signUp("op@example.org")
	if r := p.run("", "__complete", "host", "show", ""); strings.Contains(r.out, h) {
		t.Errorf("another operator's host:\n%s", r.out)
	}
}

// A platform that does not answer, or that refuses, keeps no shell waiting: nothing is suggested.
func TestCompletion_WithoutPlatform(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	p := &testPlatform{t: t, home: t.TempDir()}
	for _, environ := range [][]string{nil, {"MUSTER_SERVER=" + silent.URL, "MUSTER_TOKEN=x"}} {
		if r := p.runWith(environ, "", "__complete", "cluster", "show", ""); r.code != 0 || r.out != ":1\n" {
			t.Errorf("exit %d, %q", r.code, r.out)
		}
	}
}

func TestManualPages(t *testing.T) {
	t.Parallel()
	p := &testPlatform{t: t, home: t.TempDir()}
	dir := filepath.Join(t.TempDir(), "man1")
	p.ok("man", dir)
	page, err := os.ReadFile(filepath.Join(dir, "muster-cluster-create.1"))
	if err != nil || !strings.Contains(string(page), "on-node-failure") {
		t.Errorf("%v\n%s", err, page)
	}
}

// With -o json or yaml an error is a document on standard error, wherever the flag stands.
func TestOutput_ErrorsAreDocuments(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	for args, want := range map[string]struct {
		code   string
		exit   int
		detail string
	}{
		"cluster show none -o json":                          {"not_found", 3, "no cluster is called none"},
		"cluster -o json create --image x --nodes 0x":        {"validation_failed", 2, "--nodes: want a whole number"},
		"cluster list --bogus -o json":                       {"validation_failed", 2, "unknown flag: --bogus"},
		"cluster list --bogus --output=json":                 {"validation_failed", 2, "unknown flag: --bogus"},
		"cluster create -ojson --image b --name ../x":        {"validation_failed", 2, "name: want"},
		"cluster create -o json --image b --gpus 8":          {"no_capacity", 4, ""},
		"cluster show -o json":                               {"validation_failed", 2, "takes CLUSTER"},
		"token list -o json --server http://127.0.0.1:1":     {"unauthorized", 1, "there is no token"},
		"cluster list -o json --server ftp://x --profile no": {"unauthorized", 1, "there is no profile"},
	} {
		r := p.run("", strings.Fields(args)...)
		var doc struct {
			Code, Detail, Title string
			Status              int
			Exit                int `json:"exit_code"`
			Errors              []fault.Field
			Explain             []client.Exclusion
		}
		if err := json.Unmarshal([]byte(r.errs), &doc); err != nil || r.out != "" {
			t.Errorf("%s: %v\n%s%s", args, err, r.out, r.errs)
			continue
		}
		if doc.Code != want.code || doc.Exit != want.exit || r.code != want.exit ||
			!strings.Contains(doc.Detail, want.detail) || doc.Status < 400 || doc.Title == "" ||
			(doc.Code == "no_capacity") != (doc.Explain != nil) {
			t.Errorf("%s: exit %d %s", args, r.code, r.errs)
		}
	}
	r := p.run("", "cluster", "show", "none", "-o", "yaml")
	if r.code != 3 || !strings.HasPrefix(r.errs, "code: not_found\n") {
		t.Errorf("YAML: exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "cluster", "exec", "none", "--", "-o", "json"); !strings.HasPrefix(r.errs, "muster: ") {
		t.Errorf("arguments of a command on a node: %s", r.errs)
	}
}
