package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// example is one shell command that a help text shows.
type example struct{ command, line string }

// examplesOf returns the examples of a command and of those below it, and the commands of the root's first run.
func examplesOf(cmd *cobra.Command) []example {
	var out []example
	text := cmd.Example
	if !cmd.HasParent() {
		text = cmd.Long
	}
	text = regexp.MustCompile(`\\\n *`).ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if indented, ok := strings.CutPrefix(line, "  "); ok && strings.Contains(line, "muster") {
			command, _, _ := strings.Cut(strings.TrimSpace(indented), "   ") // what follows is an explanation
			out = append(out, example{cmd.CommandPath(), command})
		}
	}
	for _, sub := range cmd.Commands() {
		out = append(out, examplesOf(sub)...)
	}
	return out
}

// output collects what the commands of a pipeline print, which run at the same time.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// runShell runs a line as a POSIX shell does, with muster as a command of the platform's user.
func (p *testPlatform) runShell(dir, line string, limit time.Duration) result {
	p.t.Helper()
	if line == "muster account password" {
		defer func() { p.password = "another horse battery" }()
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	script, err := syntax.NewParser().Parse(strings.NewReader(line), "example")
	if err != nil {
		return result{2, "", err.Error()}
	}
	var out, errs output
	environ := []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "TOKEN=" + p.token(),
		"CURRENT=" + p.password, "NEW=a new horse battery",
		"AWS_ACCESS_KEY_ID=access", "AWS_SECRET_ACCESS_KEY=secret-of-the-test",
		"MUSTER_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}
	r, err := interp.New(interp.Dir(dir), interp.StdIO(strings.NewReader(p.typed(line)), &out, &errs),
		interp.Env(expand.ListEnviron(environ...)),
		interp.ExecHandlers(func(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
			return func(ctx context.Context, args []string) error {
				if args[0] != "muster" {
					return next(ctx, args)
				}
				h := interp.HandlerCtx(ctx)
				if code := tested.Run(ctx, args[1:], environ, h.Stdin, h.Stdout, h.Stderr); code != 0 {
					return interp.ExitStatus(code)
				}
				return nil
			}
		}))
	if err != nil {
		p.t.Fatal(err)
	}
	code := 0
	if err := r.Run(ctx, script); err != nil {
		status, ok := err.(interp.ExitStatus)
		if !ok {
			return result{-1, out.String(), errs.String() + err.Error()}
		}
		code = int(status)
	}
	return result{code, out.String(), errs.String()}
}

// typed returns what the user of an example types: a token for a login, a password otherwise.
func (p *testPlatform) typed(line string) string {
	if strings.HasPrefix(line, "muster login") && !strings.Contains(line, "--sign-up") {
		return p.token() + "\n"
	}
	return p.password + "\nanother horse battery\n"
}

// groupOf returns the world in which the examples of a command run: commands that only read share one.
func groupOf(e example) string {
	verb := e.command[strings.LastIndexByte(e.command, ' ')+1:]
	if slices.Contains(reading, verb) {
		return "reading"
	}
	return e.command
}

var reading = []string{"list", "show", "price-guide", "compare", "events", "usage", "earnings", "traffic",
	"whoami", "version", "balance", "standing", "topups", "transactions", "invitations", "books",
	"suspense", "quarantine", "frozen", "agents", "todo", "due", "audit", "orgs",
	"held-credits", "dead-letters", "store", "contested", "contested-gpus", "payouts", "reviews", "secret", "standings",
	"invoices", "statement", "offers", "tax", "estimate", "gangs", "search", "uses", "export", "receipt", "suspensions",
	"migrate", "check", "gpus", "admin", "award", "reset-second-factor", "adopt-restore", "stripe-setup"}

// Every command has an example.
func TestExamples_OfEveryCommand(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && len(examplesOf(cmd)) == 0 {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	walk(tested.root())
}

// Every example of every help text is run by a shell on a platform with three hosts, whose operator is an admin, and a
// renter with credit and a cluster. Nothing runs on the hosts, so that what needs a running node is refused; the end to
// end tests run these commands.
func TestExamples(t *testing.T) {
	t.Parallel()
	groups := map[string][]example{}
	seen := map[string]bool{"muster dev": true, "muster demo": true} // the whole platform: end-to-end tests run it
	for _, e := range examplesOf(tested.root()) {
		if !seen[e.line] {
			seen[e.line] = true
			groups[groupOf(e)] = append(groups[groupOf(e)], e)
		}
	}
	used := map[string]bool{}
	var mu sync.Mutex
	t.Run("commands", func(t *testing.T) {
		for group, examples := range groups {
			t.Run(group, func(t *testing.T) {
				t.Parallel()
				w := newExampleWorld(t)
				if group == "muster volume" {
					w.ok("volume", "delete", "training-data") // the first example creates it
				}
				if group == "muster bucket" {
					store := s3test.Start(t).Config
					w.known["https://s3.eu-central-1.amazonaws.com"], w.known["acme-results"] = store.Endpoint, store.Bucket
					w.known["eu-central-1"] = "us-east-1" // of that store
				}
				if group == "muster" {
					w.ok("cluster", "release", "train") // the first run rents its own
				}
				for _, e := range examples {
					command, line := e.command, e.line
					want, refused := refusedExamples[line]
					mu.Lock()
					used[line] = refused
					mu.Unlock()
					if got := w.try(command, line); got.code != want.code || !strings.Contains(got.errs, want.message) {
						t.Errorf("%s\nexit %d, want %d (%s)\n%s%s", line, got.code, want.code, want.message, got.out, got.errs)
					}
				}
			})
		}
	})
	for line := range refusedExamples {
		if !used[line] {
			t.Errorf("no help text shows %s any more", line)
		}
	}
}

type refusal struct {
	code    int
	message string
}

// refusedExamples are the examples that the world of the test refuses, with the exit code and the reason.
var refusedExamples = map[string]refusal{
	// The platform of this test opens no shells and runs nothing.
	"muster cluster ssh train":                                       noGateway,
	"muster cluster ssh train --node 1 -- nvidia-smi":                noGateway,
	"muster cluster ssh train -- -L 8888:localhost:8888":             noGateway,
	"muster cluster exec train -- nvidia-smi":                        noShells,
	"muster cluster exec train --node 1 -- sh -c 'ls | wc -l'":       noShells,
	"muster cluster exec train -t -- python":                         noShells,
	"muster cluster port-forward train 8888":                         noShells,
	"muster cluster port-forward train --node 1 6006:6006 9000:8000": noShells,
	"muster cluster cp data train:/work":                             noShells,
	"muster cluster cp train.1:checkpoints/last.pt .":                noShells,
	"muster cluster cp 'train:/out/*.pt' models":                     noShells,
	// No cluster of this platform has had the file system.
	"muster shared erase lab-nfs": {3, "no data there"},
	// Nothing writes the volume of this platform, so that it has no snapshot, and a cluster has it.
	"muster volume files training-data checkpoints":                             {3, "snapshot not found"},
	"muster volume get training-data checkpoints/model.pt --out model.pt":       {3, "snapshot not found"},
	"muster volume cp ./data training-data:/data":                               {1, "is written by the cluster"},
	"muster volume cp training-data:/checkpoints ./checkpoints":                 {3, "snapshot not found"},
	"muster volume restore training-data 12":                                    {1, "is written by the cluster"},
	"muster volume clone training-data training-data-2":                         {3, "snapshot not found"},
	"muster volume delete training-data":                                        {1, "release them first"},
	waitingExample + " --max-duration 2h --budget 20 --wait -- python train.py": {1, "not running yet"},
	waitingExample + " --budget 20 --wait -- python train.py":                   {1, "not running yet"},
	"muster cluster open train 8888":                                            {1, "is still starting"},
	"muster cluster apply -f train.yaml --wait":                                 {1, "not running yet"},

	// There is no such object, or it cannot be done now.
	"muster account sessions end ses_…":                             {3, "session"},
	"muster org members invite bob@example.com --role viewer":       {1, "verify your own"},
	"muster account delete --confirm ada@example.com":               {1, "clusters are running"},
	"muster login https://muster.example --sign-up ada@example.com": {1, "sign in instead"},
	"muster admin compensate ltx_… --amount 1.50" +
		" --reason 'an outage of ours'": notCharge,
	"muster admin compensate ltx_… --amount 1.50" +
		" --reason 'half of it'": notCharge,
	"muster admin compensate ltx_… --reason 'an outage of ours'":       notCharge,
	"muster admin payouts pay org_… --reason 'their bank works again'": {3, "no payout account"},
	"muster admin payouts reverse payout_… --amount 25.00" +
		" --reason 'sent twice'": {3, "payout not found"},
	"muster admin postpaid write-off org_… in_…" +
		" --reason 'insolvent'": noInvoice,
	"muster admin postpaid paid-by-bank org_… in_… 7.90 --reference 2026-11-20/4711 " +
		"--reason 'after a lost dispute'": noInvoice,
	"muster admin entry approve lpr_… --reason 'checked with the bank statement'": {3, "proposal not found"},
	"muster admin entry refuse lpr_… --reason 'the wrong account'":                {3, "proposal not found"},
	"muster admin remit-tax 2026-Q1 DE 1234.56" +
		" --reason 'transfer of 10 April'": {2, "nothing is left"},
	"muster billing postpaid usage":                   {3, "does not pay afterwards"},
	"muster billing postpaid usage in_…":              noInvoice,
	"muster billing postpaid pay in_…":                noInvoice,
	"muster cluster wait train":                       {1, "not running yet"},
	"muster cluster restart train":                    {1, "can be restarted while it is running"},
	"muster host retire rack-7-a":                     {1, "are in use"},
	"muster host requalify rack-7-a 3":                {1, "The GPU is healthy"},
	"muster host bond suspensions cl_…":               {3, "no gang"},
	"muster org members role bob@example.com billing": {3, "not a member"},
	"muster org members remove bob@example.com":       {3, "not a member"},
	"muster org members withdraw inv_…":               {3, "invitation not found"},
	"muster org join inv_…":                           {3, "invitation for you not found"},
	"muster org leave":                                {1, "only organisation"},
	"muster billing cards default card_…":             {3, "card not found"},
	"muster billing cards remove card_…":              {3, "card not found"},
	"muster billing redeem WELCOME-2026":              {3, "it does not exist"},
	"muster admin release review_…" +
		" --reason 'a subsidiary, known to us'": {3, "review not found"},
	"muster admin refuse review_…" +
		" --reason 'a subsidiary, known to us'": {3, "review not found"},
	"muster admin set org_… --stop-payouts" +
		" --reason 'under investigation'": {3, "no payout account"},
	"muster admin unfreeze ls_… --reason 'restored from a backup'": {3, "lease not found"},
	"muster admin forgive org_…" +
		" --reason 'the bank took the disputes back'": {1, "has lost no dispute"},
	"muster admin postpaid release-refund re_…" +
		" --reason 'a goodwill refund'": {3, "refund not found"},
	"muster admin decide-credit ls_… --reason 'the host lost power'": {3, "no credit"},
	"muster admin decide-credit ls_… --refuse" +
		" --reason 'the renter filled the disk'": {3, "no credit"},
	"muster admin award-gpu GPU-5a0c1e5e-0d9c-4f4e-8f0e-0a2b3c4d5e6f host_…" +
		" --reason 'invoice shown'": {3, ""},

	// Commands of the server's own machine reach no database here.
	"muster server migrate":       noDatabase,
	"muster server check":         noDatabase,
	"muster server adopt-restore": noDatabase,
	"muster server gpus award GPU-5a0c1e5e-0d9c-4f4e-8f0e-0a2b3c4d5e6f host_…" +
		" --why 'invoice shown'": noDatabase,
	"muster server admin ada@example.com":               noDatabase,
	"muster server admin ada@example.com --off":         noDatabase,
	"muster server reset-second-factor ada@example.com": noDatabase,
	"muster server stripe-setup":                        {2, "MUSTER_STRIPE_KEY"},

	"muster host bond deposit 25":  {5, "can be deposited"},
	"muster host bond withdraw 25": {5, "can be withdrawn"},
}

const waitingExample = "muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 " +
	"--image pytorch/pytorch:2.4.0"

var (
	noGateway  = refusal{3, "no SSH gateway"}
	noShells   = refusal{1, "opens no shells"}
	noDatabase = refusal{1, ""}
	noInvoice  = refusal{3, "invoice not found"}
	notCharge  = refusal{1, ""}
)

type exampleWorld struct {
	*testPlatform
	dir   string
	known map[string]string // placeholders, and what stands for them
}

func newExampleWorld(t *testing.T) *exampleWorld {
	t.Helper()
	w := &exampleWorld{testPlatform: newPlatform(t), dir: t.TempDir(), known: map[string]string{}}
	w.signUp("op@example.com")
	w.sellNamed("rack-7-a", 8, "1.99") // the cheapest: the cluster of the examples is on it
	w.sellNamed("attic", 8, "2.00")
	w.sellNamed("cellar", 8, "2.00")
	if _, err := w.db.Pool.Exec(t.Context(), "INSERT INTO host_agent (host_id, capabilities) SELECT id, $1 FROM host "+
		"ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities",
		append(agentapi.Capabilities(), agentapi.CapVolumes)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Pool.Exec(t.Context(), "UPDATE host SET scratch_gb = 1000"); err != nil {
		t.Fatal(err)
	}
	w.admin("op@example.com")
	w.ok("profile", "list")
	if r := w.run("correct horse battery\n", "login", w.url, "--sign-up", "ada@example.com", "--profile",
		"ada"); r.code != 0 {
		t.Fatal(r.errs)
	}
	if r := w.run(w.token()+"\n", "login", w.url, "--profile", "work"); r.code != 0 {
		t.Fatal(r.errs)
	}
	w.ok("profile", "use", "ada")
	top := w.json("billing", "topup", "200")
	w.known["top_…"] = top["id"].(string)
	w.known["cl_…"] = w.json("cluster", "create", "--name", "train", "--gpus", "1", "--image", "x/y:1")["id"].(string)
	w.known["cl_01jd9w6n3q…"], w.known["cl_01jd9w6n3q0000000000000001"] = w.known["cl_…"], w.known["cl_…"]
	w.known["q_…"] = w.json("quote", "--gpus", "1")["id"].(string)
	w.known["org_…"] = w.json("whoami")["org"].(map[string]any)["id"].(string)
	w.known["ltx_…"] = w.posting()
	const nothing = "0000000000000000000000000z" // of no object
	for _, prefix := range []string{"inv", "card", "ls", "re", "review", "host", "lpr"} {
		w.known[prefix+"_…"] = prefix + "_" + nothing
	}
	w.known["bud_…"] = w.json("budget", "set", "--project", "speech", "--cap", "100")["id"].(string)
	w.ok("volume", "create", "training-data", "--size", "100")
	w.known["tok_…"] = w.json("token", "create", "ci")["id"].(string)
	w.known["in_…"], w.known["payout_…"], w.known["ses_…"] = "in_"+nothing, "payout_"+nothing, "ses_"+nothing
	w.known["https://muster.example"] = w.url
	w.known["./data"] = filepath.Join(w.dir, "data")
	w.known["/usr/local/share/man/man1"] = filepath.Join(w.dir, "man1")
	for _, file := range []string{"train.yaml", "bill.json"} { // a file name is relative to the folder of this package
		w.known[file] = filepath.Join(w.dir, file)
	}
	w.write("train.yaml", "name: other\nimage: x/y:1\nmax_duration: 2h\n")
	w.write("data/part-1", "data")
	w.write(".ssh/id_ed25519.pub",
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada\n")
	r := w.run("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ0UxE5kWyYxcTjF0BzvN4xEGGAhnnuTX5ySDyX/iNQ ada@laptop\n", "ssh-key",
		"add", "-", "-o", "name")
	w.known["key_…"] = strings.TrimSpace(r.out)
	r = w.run("", "webhook", "create", "https://example.com/hook", "-o", "name")
	w.known["wh_…"], w.known["ntc_…"] = strings.TrimSpace(r.out), w.notice("ada@example.com")
	return w
}

// notice adds a notice to the organisation of a user and returns its id.
func (w *exampleWorld) notice(email string) string {
	w.t.Helper()
	var raw uuid.UUID
	if err := w.db.Pool.QueryRow(w.t.Context(), "SELECT m.org_id FROM membership m JOIN app_user u ON u.id = m.user_id "+
		"WHERE u.email = $1", email).Scan(&raw); err != nil {
		w.t.Fatal(err)
	}
	org := id.FromUUID[id.Org](raw)
	if err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := notify.Add(ctx, tx, notify.Notice{Org: org, Key: "example", Severity: notify.Warn, Title: "Look"})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	list, err := notify.NewNotices(w.db).List(w.t.Context(), org, notify.Filter{Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return list[0].ID.String()
}

// write writes a file into the folder of the examples, which is the user's home, too.
func (w *exampleWorld) write(name, text string) {
	w.t.Helper()
	for _, dir := range []string{w.dir, w.home} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// posting returns the id of an entry of the ledger.
func (w *exampleWorld) posting() string {
	w.t.Helper()
	out := w.ok("admin", "search", w.known["org_…"], "--profile", "default")
	return regexp.MustCompile(`ltx_[0-9a-z]+`).FindString(out)
}

// try runs an example as the one it is for: an admin, a host operator (the same person) or a renter.
func (w *exampleWorld) try(command, line string) result {
	w.t.Helper()
	for placeholder, value := range w.known {
		line = regexp.MustCompile(regexp.QuoteMeta(placeholder)+`($|[ '])`).ReplaceAllString(line, value+"$1")
	}
	profile := "ada"
	if strings.HasPrefix(command, "muster admin") || strings.HasPrefix(command, "muster host") ||
		strings.HasPrefix(command, "muster payout") {
		profile = "default"
	}
	if command != "muster logout" {
		w.ok("profile", "use", profile)
	}
	if command == "muster template delete" {
		w.ok("template", "create", "smi", "--from-cluster", "train")
	}
	limit := time.Minute // a command that takes longer hangs
	if strings.Contains(line, "--wait") || strings.HasPrefix(line, "muster cluster wait") ||
		strings.HasSuffix(line, "--follow") {
		limit = 2 * time.Second // waits for a cluster that no one starts
	}
	return w.runShell(w.dir, line, limit)
}
