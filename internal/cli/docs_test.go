package cli

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/docs"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/serve/api"
)

// documents returns the text of every page of the documentation, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := fs.WalkDir(docs.FS, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") || strings.HasPrefix(path, "adr/") ||
			path == "evidence/findings.md" {
			return err
		}
		b, err := fs.ReadFile(docs.FS, path)
		pages[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var (
	continued = regexp.MustCompile(`\\\n *`)
	comment   = regexp.MustCompile(`\s{2,}(#.*)?$|\s#\s.*$`)
	fence     = regexp.MustCompile("(?m)^ *```(\\w*)\n((?s:.*?))^ *```$")
	inline    = regexp.MustCompile("`(muster [a-z][^`]*)`")
)

// commandsIn returns the muster commands of a page: in blocks of code of the given language, or, for "*", in all blocks
// and within the text.
func commandsIn(page, language string) []string {
	var lines []string
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if language != "*" && block[1] != language {
			continue
		}
		for line := range strings.Lines(continued.ReplaceAllString(block[2], "")) {
			lines = append(lines, comment.ReplaceAllString(strings.TrimSpace(line), ""))
		}
	}
	if language == "*" {
		for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
		}
	}
	var out []string
	for _, line := range lines {
		if strings.HasPrefix(line, "muster ") {
			out = append(out, line)
		}
	}
	return out
}

// Every command that the documentation names exists and has the flags that are shown.
func TestDocs_CommandsExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for path, page := range documents(t) {
		for _, line := range commandsIn(page, "*") {
			seen++
			if err := exists(line); err != "" {
				t.Errorf("docs/%s: %s: %s", path, line, err)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands: the pages are not read right", seen)
	}
}

// exists says what is wrong with the command and the flags of a line, or nothing.
func exists(line string) string {
	words, _, _ := strings.Cut(line, " -- ")
	args, err := shellquote.Split(words)
	if err != nil {
		return err.Error()
	}
	cmd, rest, err := tested.root().Find(args[1:])
	if err != nil {
		return err.Error()
	}
	takesArguments := strings.Contains(cmd.Use, "[")
	if cmd.HasSubCommands() && !takesArguments && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") &&
		rest[0] == strings.ToLower(rest[0]) && !strings.Contains(rest[0], "…") {
		return "there is no command " + rest[0] + " below " + cmd.CommandPath()
	}
	for _, word := range rest {
		name, long := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		var flag *pflag.Flag
		switch {
		case long && name == "help", !strings.HasPrefix(word, "-"), len(word) < 2:
			continue
		case long:
			flag = cmd.Flag(name)
		default:
			if flag = cmd.Flags().ShorthandLookup(word[1:2]); flag == nil {
				flag = cmd.InheritedFlags().ShorthandLookup(word[1:2])
			}
		}
		if flag == nil {
			return "there is no flag " + word
		}
	}
	return ""
}

// refusedInDocs are the commands of pages that the world of this test refuses, where nothing runs on the hosts.
var refusedInDocs = map[string]refusal{
	"muster cluster exec hello --node 1 -- hostname":   noShells,
	"muster cluster exec train --node 1 -- nvidia-smi": noShells,
	"muster cluster cp train:checkpoints/last.pt .":    noShells,
	"muster cluster cp 'train:/out/*.pt' models":       noShells,
	"muster cluster port-forward train 8888":           noShells,
	"muster cluster ssh train --node 1":                noGateway,

	// The three hosts of the test have 8 GPUs each, and one GPU is taken; one host lends the ports of a fabric.
	"muster cluster create --nodes 2 --gpus 8 --image registry.example/train:1 " +
		"-- torchrun ddp.py": noRoom,
	"muster cluster create --nodes 2 --gpus 8 --fabric rdma --image registry.example/train:1 " +
		"-- torchrun …": noRoom,
	"muster cluster create --nodes 2 --gpus 8 --image registry.example/mpi:1 " +
		"-- sh mpirun.sh python3 allreduce.py": noRoom,

	"muster host enroll --name rack-7-a --region eu-west": {1, "already have a host named rack-7-a"},

	// There is no such object.
	"muster admin release review_… --reason 'a subsidiary, known to us'": {3, "review not found"},
	"muster admin refuse review_… --reason 'paid with stolen cards'":     {3, "review not found"},
	"muster admin postpaid write-off org_… in_… --reason 'insolvent'":    noInvoice,
	"muster admin postpaid paid-by-bank org_… in_… 7.90 --reference 2026-11-20/4711 " +
		"--reason 'after a lost dispute'": noInvoice,
	"muster admin compensate ltx_… --amount 1.50 --reason 'an outage of ours'":    notCharge,
	"muster admin remit-tax 2026-Q1 DE 1234.56 --reason 'transfer of 10 April'":   {2, "nothing is left"},
	"muster admin entry approve lpr_… --reason 'checked with the bank statement'": {3, "proposal not found"},
	"muster admin unfreeze ls_… --reason 'restored from a backup'":                {3, "lease not found"},
	"muster admin promo disable WELCOME-2027 --reason '…'":                        {3, "code not found"},
}

var noRoom = refusal{4, "no placement"}

// Every command of every page is run, in its order, as TestExamples runs those of help texts. The pages mark blocks
// that can be run as sh.
func TestDocs_CommandsRun(t *testing.T) {
	t.Parallel()
	ran := 0
	for path, page := range documents(t) {
		lines := commandsIn(page, "sh")
		if len(lines) == 0 {
			continue
		}
		ran += len(lines)
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newExampleWorld(t)
			for _, line := range lines {
				want := refusedInDocs[line]
				if strings.Contains(line, "--wait") {
					want = refusal{1, "not running yet"}
				}
				if got := w.try(actorOf(line), line); got.code != want.code || !strings.Contains(got.errs, want.message) {
					t.Errorf("%s\nexit %d, want %d (%s)\n%s%s", line, got.code, want.code, want.message, got.out, got.errs)
				}
			}
		})
	}
	if ran < 60 {
		t.Errorf("only %d commands: the pages are not read right", ran)
	}
}

// Every page whose blocks send requests with curl is run as one script, by a shell with the real curl and jq. A request
// that the server refuses fails.
func TestDocs_RequestsRun(t *testing.T) {
	t.Parallel()
	ran := 0
	for path, page := range documents(t) {
		script := requestsIn(page)
		if script == "" {
			continue
		}
		ran += strings.Count(script, "curl ")
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newExampleWorld(t)
			w.ok("profile", "use", "ada")
			w.known["timeout=60"] = "timeout=0" // no one starts the cluster
			for placeholder, value := range w.known {
				script = strings.ReplaceAll(script, placeholder, value)
			}
			token := w.json("token", "create", "docs", "--scope", "read", "--scope", "clusters",
				"--scope", "billing")["token"].(string)
			// A page shows output that the test does not look at; uuidgen is not on every machine.
			got := w.runShell(w.dir, "set -euo pipefail\nMUSTER_TOKEN="+token+"\n"+
				"uuidgen() { cat /proc/sys/kernel/random/uuid; }\n"+
				"curl() { command curl --fail-with-body \"$@\"; }\n"+script, time.Minute)
			if got.code != 0 {
				t.Errorf("exit %d\n%s\n%s%s", got.code, script, got.out, got.errs)
			}
		})
	}
	if ran < 9 {
		t.Errorf("only %d requests: the pages are not read right", ran)
	}
}

// requestsIn returns the shell blocks of a page, or nothing if none of them sends a request to the REST API.
func requestsIn(page string) string {
	var script strings.Builder
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if block[1] == "sh" {
			script.WriteString(block[2])
		}
	}
	if !strings.Contains(script.String(), "/api/v1/") {
		return ""
	}
	return script.String()
}

// The documentation names only targets of the Makefile, scripts, and subcommands of muster-agent that exist.
func TestDocs_ProgramsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(string(makefile), -1)
	seen := 0
	for path, page := range documents(t) {
		for _, m := range regexp.MustCompile("`(?:sudo )?make ([a-z-]+)").FindAllStringSubmatch(page, -1) {
			seen++
			if !slices.ContainsFunc(targets, func(target []string) bool { return target[1] == m[1] }) {
				t.Errorf("docs/%s: there is no make %s", path, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`((?:scripts|deploy)/[a-z_./-]+)").FindAllStringSubmatch(page, -1) {
			seen++
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("docs/%s: %v", path, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d programs: the pages are not read right", seen)
	}
}

// actorOf names the command as which [exampleWorld.try] runs a line: the operator acts on the host that exists already.
func actorOf(line string) string {
	switch {
	case strings.HasPrefix(line, "muster admin"):
		return "muster admin"
	case strings.Contains(line, "rack-7-a") && !strings.HasPrefix(line, "muster offers"):
		return "muster host"
	}
	return "muster cluster"
}

func TestReference_HasEveryCommand(t *testing.T) {
	t.Parallel()
	root := tested.root()
	pages := base.Reference(root)
	for _, cmd := range root.Commands() {
		if page := pages[cmd.Name()]; cmd.Name() != "help" && !strings.HasPrefix(page, "# muster "+cmd.Name()+"\n") {
			t.Errorf("no page about muster %s", cmd.Name())
		}
	}
	for _, want := range []string{
		"## muster cluster create\n", "| `--max-duration string` | ", "muster cluster apply -f train.yaml",
	} {
		if !strings.Contains(pages["cluster"], want) {
			t.Errorf("the page about muster cluster lacks %q", want)
		}
	}
}

// Every command that the reference of the REST API shows beside an operation exists.
func TestReference_CommandsExist(t *testing.T) {
	t.Parallel()
	raw, err := api.New(api.Config{Currency: "USD"}, api.Deps{}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct {
			Samples []struct{ Label, Source string } `json:"x-codeSamples"`
		}
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, item := range document.Paths {
		for method, op := range item {
			for _, s := range op.Samples {
				if s.Label != "muster" {
					continue
				}
				seen++
				if err := exists(s.Source); err != "" {
					t.Errorf("%s %s: %s: %s", method, path, s.Source, err)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d operations have a command", seen)
	}
}
