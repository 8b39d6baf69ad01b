package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// platform is a server on a real port, without the machinery hosts need.
type testPlatform struct {
	t        *testing.T
	url      string
	db       *db.DB
	market   *market.Market
	home     string // of the user
	password string // of the account in use
}

func newPlatform(t *testing.T) *testPlatform {
	t.Helper()
	return newPlatformOn(t, nil)
}

// newPlatformOn is a platform that keeps volumes in a store; nil: in a folder.
func newPlatformOn(t *testing.T, packs store.Store) *testPlatform {
	t.Helper()
	p := &testPlatform{t: t, db: dbtest.New(t), home: t.TempDir(), password: "correct horse battery"}
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "whsec_test"})
	if err != nil {
		t.Fatal(err)
	}
	client := httptest.NewServer(fake)
	t.Cleanup(client.Close)
	sc, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "whsec_test", URL: client.URL})
	if err != nil {
		t.Fatal(err)
	}
	out := outbox.New(p.db, sc, quiet)
	in := events.New(p.db, sc, quiet)
	pay, err := payment.New(p.db, out, in, payment.Config{
		Currency:      "USD",
		DefaultMethod: "pm_card_visa",
		ReturnURL:     "http://muster.test",
		Sandbox:       true,
		Taxer:         tax.Flat{Rates: tax.EU()},
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if p.market, err = market.New(p.db, box, market.Config{Currency: "USD", AllowSimulated: true}); err != nil {
		t.Fatal(err)
	}
	outs, err := payout.New(p.db, out, in, payout.Config{
		Currency: "USD",
		PageURL:  "http://muster.test/payouts",
		Sandbox:  true,
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	after, err := postpaid.New(p.db, out, pay.Invoices, postpaid.Config{Currency: "USD"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	accounts := account.New(p.db, account.Config{
		DeviceInterval: time.Millisecond,
		HashMemoryKiB:  64, // a hash of 19 MiB takes 0.3 s with the race detector
		Post: func(context.Context, *db.Tx, account.Letter) error {
			return nil
		},
	})
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	if packs == nil {
		folder, err := store.OpenFolder(t.TempDir(), srv.URL, bytes.Repeat([]byte{7}, 32))
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(store.SignedPath, folder.Handler())
		packs = folder
	}
	mux.Handle("/", api.New(api.Config{Currency: "USD", AgentURL: "https://agents.muster.test"}, api.Deps{
		Nouns: nouns.Nouns{
			Accounts:   accounts,
			Market:     p.market,
			Hosts:      host.New(p.db, nil),
			Outbox:     out,
			Events:     in,
			Reconciler: reconcile.New(p.db, sc, in.Refresh, "USD", quiet),
			Payments:   pay,
			Payouts:    outs,
			Postpaid:   after,
			Bonds:      bond.New(p.db, "USD"),
			Budgets:    budget.New(p.db, "USD"),
			Leases:     metering.NewLeases(p.db),
			Statements: statement.New(p.db, "USD", statement.Party{}),
			Notices:    notify.NewNotices(p.db),
			Shared:     sharedfs.New(p.db, nil),
			Buckets:    bucket.New(p.db, bucket.Config{Box: box, AnyAddress: true}),
			Webhooks:   notify.NewWebhooks(p.db, box, false),
			Erasure:    erasure.New(p.db, accounts.Passwords),
			Templates:  template.New(p.db, ""),
			Volumes:    volume.New(p.db, packs, volume.Config{Currency: "USD", Box: box}),
			Clusters:   cluster.New(p.db, p.market, nil, cluster.Config{Currency: "USD", Box: box}),
		},
		Database: p.db,
		Box:      box,
		Log:      quiet,
	}))
	p.url = srv.URL
	return p
}

type result struct {
	code      int
	out, errs string
}

// run runs one command line as a user at a prompt does.
func (p *testPlatform) run(stdin string, args ...string) result {
	p.t.Helper()
	return p.runWith(nil, stdin, args...)
}

func (p *testPlatform) runWith(environ []string, stdin string, args ...string) result {
	p.t.Helper()
	var out, errs bytes.Buffer
	code := tested.Run(p.t.Context(), args, append([]string{"HOME=" + p.home}, environ...), strings.NewReader(stdin),
		&out, &errs)
	return result{code, out.String(), errs.String()}
}

func (p *testPlatform) ok(args ...string) string {
	p.t.Helper()
	r := p.run("", args...)
	if r.code != 0 || r.errs != "" {
		p.t.Fatalf("muster %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.errs)
	}
	return r.out
}

func (p *testPlatform) json(args ...string) map[string]any {
	p.t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(p.ok(append([]string{args[0], "-o", "json"}, args[1:]...)...)), &v); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// signUp makes an account and logs in.
func (p *testPlatform) signUp(email string) {
	p.t.Helper()
	if r := p.run("correct horse battery\n", "login", p.url, "--sign-up", email); r.code != 0 {
		p.t.Fatalf("exit %d: %s", r.code, r.errs)
	}
}

// sell puts a host of n GPUs on the market, enrolled by command.
func (p *testPlatform) sell(n int, price string) string { return p.sellNamed("", n, price) }

func (p *testPlatform) sellNamed(name string, n int, price string) string {
	p.t.Helper()
	e := p.json("host", "enroll", "--region", "eu-test", "--name", name)
	agent := fleettest.NewAgent(p.t)
	req := agent.Request(p.t, fleettest.Origin, e["token"].(string), fleettest.Inventory(n))
	err := p.db.InTx(p.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		h, err := host.Enroll(ctx, tx, fleettest.Policy, req)
		if err != nil {
			return err
		}
		agent.Host = h.ID
		return p.market.SyncOffers(ctx, tx, h.ID)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	fleettest.Activate(p.t, p.db, agent)
	p.ok("host", "set", agent.Host.String(), "--price", price)
	return agent.Host.String()
}

func TestLogin(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	if r := p.run("", "offers"); r.code != 1 || !strings.Contains(r.errs, "muster login") {
		t.Errorf("without a login: exit %d %s", r.code, r.errs)
	}
	p.signUp("ada@example.com")
	file := filepath.Join(p.home, ".config", "muster", "login.json")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	tok := p.json("token", "create", "ci", "--scope", "read")["token"].(string)
	if r := p.run(tok+"\n", "login", p.url); r.code != 0 || !strings.Contains(r.out, "ada@example.com") ||
		strings.Contains(r.out, tok) {
		t.Errorf("exit %d %s %s", r.code, r.out, r.errs)
	}
	if r := p.run("nonsense\n", "login", p.url); r.code != 1 || !strings.Contains(r.errs, "API token") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	elsewhere := httptest.NewServer(nil)
	t.Cleanup(elsewhere.Close)
	if r := p.run("", "offers", "--server", elsewhere.URL); r.code != 1 || !strings.Contains(r.errs, "no token for") {
		t.Errorf("the stored token would go elsewhere: exit %d %s", r.code, r.errs)
	}
	if r := p.runWith([]string{"MUSTER_SERVER=" + p.url, "MUSTER_TOKEN=" + tok}, "", "token", "list"); r.code != 0 {
		t.Errorf("by environment: exit %d %s", r.code, r.errs)
	}
	for token, want := range map[string]string{tok + "\r\n": "", " " + tok + "\n": "", `"` + tok + `"`: "the API token has",
		tok[:20] + "\n" + tok[20:]: "the API token has", "muster_pat_…": "the API token has"} {
		r := p.runWith([]string{"MUSTER_SERVER= " + p.url + "/\n", "MUSTER_TOKEN=" + token}, "", "token", "list")
		if (r.code == 0) != (want == "") || !strings.Contains(r.errs, want) {
			t.Errorf("MUSTER_TOKEN=%q: exit %d %s", token, r.code, r.errs)
		}
	}
}

func TestRentingByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	p.sell(8, "2.00")
	p.signUp("ada@example.com") // no one rents from themselves
	if out := p.ok("offers", "gpu_model=H100"); !strings.Contains(out, "NVIDIA H100 80GB HBM3") ||
		!strings.Contains(out, "8/8") || !strings.Contains(out, "2.00") {
		t.Errorf("offers:\n%s", out)
	}
	rent := []string{"cluster", "create", "--name", "train", "--nodes", "2", "--gpus", "4", "--scope", "host", "--image",
		"registry.test/job:1", "--max-duration", "2h", "-e", "A=b"}
	if r := p.run("", append(rent, "--", "python", "train.py")...); r.code != 5 ||
		!strings.Contains(r.errs, "muster billing topup") {
		t.Errorf("without funds: exit %d %s", r.code, r.errs)
	}
	if out := p.ok("billing", "topup", "50"); !strings.Contains(out, "50.00 USD were added") {
		t.Errorf("top-up: %s", out)
	}
	if r := p.run("", "cluster", "create", "--gpus", "16", "--image", "x/y:1"); r.code != 4 ||
		!strings.Contains(r.errs, "excluded") {
		t.Errorf("no capacity: exit %d %s", r.code, r.errs)
	}
	q := p.json("quote", "--nodes", "2", "--gpus", "4", "--scope", "host", "--image", "x/y:1")
	if out := p.ok("quote", "show", q["id"].(string)); !strings.Contains(out, "per hour all-in") ||
		!strings.Contains(out, "Held until") {
		t.Errorf("quote:\n%s", out)
	}
	p.ok("quote", "return", q["id"].(string))
	c := p.json(append(rent, "--", "python", "train.py")...)
	id := c["id"].(string)
	for _, args := range [][]string{{"cluster", "list"}, {"cluster", "show", "train"}, {"cluster", "show", id},
		{"cluster", "events", id}, {"cluster", "usage", id}} {
		if out := p.ok(args...); out == "" {
			t.Errorf("%v says nothing", args)
		}
	}
	byName, byID := p.json("billing", "verify", "train"), p.json("billing", "verify", id)
	if diff := cmp.Diff(byName, byID); diff != "" || len(byName) == 0 {
		t.Errorf("verified by its name, and by its id:\n%s", diff)
	}
	if r := p.run("", "billing", "verify", "trian"); r.code != 3 || !strings.Contains(r.errs, "muster cluster list") ||
		!strings.Contains(r.errs, "did you mean train?") {
		t.Errorf("no cluster of this name: exit %d %s", r.code, r.errs)
	}
	if out := p.ok("cluster", "show", "train"); !strings.Contains(out, "provisioning") ||
		!strings.Contains(out, "10.77.0.1") {
		t.Errorf("show:\n%s", out)
	}
	if r := p.run("", "cluster", "wait", id, "--timeout", "5s"); r.code != 1 ||
		!strings.Contains(r.errs, "not running yet") || !strings.Contains(r.errs, "train  rank 0  pending") {
		t.Errorf("wait: exit %d %s", r.code, r.errs)
	}
	p.ok("cluster", "release", "train")
	if r := p.run("", "cluster", "wait", "train"); r.code != 1 || !strings.Contains(r.errs, "will not be running") {
		t.Errorf("wait for an ended one: exit %d %s", r.code, r.errs)
	}
	if b := p.json("billing", "balance"); b["available"] != "50.000000000" {
		t.Errorf("a start that never ran was charged: %v", b)
	}
	if out := p.ok("billing", "refund"); !strings.Contains(out, "50.00 can be given back") {
		t.Error(out)
	}
	if r := p.run("", "billing", "refund", "50.01"); r.code != 1 ||
		!strings.Contains(r.errs, "only 50.00 can be refunded") || strings.Contains(r.errs, "topup") {
		t.Errorf("more than there is: exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "billing", "redeem", "no-such-code"); r.code != 3 {
		t.Errorf("no such code: exit %d %s", r.code, r.errs)
	}
	if out := p.ok("billing", "cards", "add"); !strings.Contains(out, "/pay/") {
		t.Error(out)
	}
	if out := p.ok("billing", "auto-topup", "--below", "5", "--amount", "10", "--daily-cap", "20"); !strings.Contains(out,
		"10.00 is added") {
		t.Error(out)
	}
	if out := p.ok("billing", "auto-topup", "--off"); !strings.Contains(out, "Off") {
		t.Error(out)
	}
	if out := p.ok("billing", "transactions"); !strings.Contains(out, "topup") {
		t.Errorf("transactions:\n%s", out)
	}
}

func TestBudgetsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "budget", "set", "--cap", "-3"); r.code != 2 {
		t.Errorf("a cap below zero: exit %d %s", r.code, r.errs)
	}
	p.ok("budget", "set", "--cap", "500")
	b := p.json("budget", "set", "--project", "vision", "--cap", "120", "--max-price", "20", "--max-duration", "12h")
	if out := p.ok("budget", "list"); !strings.Contains(out, "(organisation)") || !strings.Contains(out, "vision") ||
		!strings.Contains(out, "12h") {
		t.Errorf("list:\n%s", out)
	}
	p.ok("budget", "remove", b["id"].(string))
	if out := p.ok("budget", "list"); strings.Contains(out, "vision") {
		t.Errorf("after the removal:\n%s", out)
	}
}

func TestHostsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	if out := p.ok("host", "enroll", "--region", "eu-test"); !strings.Contains(out,
		"muster-agent enroll --url https://agents.muster.test") {
		t.Errorf("enroll:\n%s", out)
	}
	h := p.sell(4, "1.25")
	if out := p.ok("host", "list"); !strings.Contains(out, h) || !strings.Contains(out, "0/4") ||
		!strings.Contains(out, "selling") {
		t.Errorf("list:\n%s", out)
	}
	if out := p.ok("host", "set", h, "--name", "box", "--price", "1.5"); !strings.Contains(out, "1.50 per GPU-hour") {
		t.Errorf("set:\n%s", out)
	}
	p.ok("host", "show", "box")
	p.ok("host", "earnings", "box")
	if out := p.ok("payout", "show"); !strings.Contains(out, "no payout account") {
		t.Errorf("payout show:\n%s", out)
	}
	if out := p.ok("payout", "setup", "--country", "DE"); !strings.Contains(out, "/pay/accounts/") {
		t.Errorf("payout setup:\n%s", out)
	}
	if out := p.ok("payout", "show"); !strings.Contains(out, "external_account") {
		t.Errorf("payout show:\n%s", out)
	}
	p.ok("payout", "list")
	if out := strings.Join(strings.Fields(p.ok("host", "payouts")), " "); !strings.Contains(out, "Payable 0.00 USD") ||
		!strings.Contains(out, "Not booked 0.00 USD") {
		t.Errorf("payouts:\n%s", out)
	}
	p.ok("host", "drain", "box")
	p.ok("host", "resume", "box")
	p.ok("host", "drain", "box")
	if out := p.ok("host", "retire", "box"); !strings.Contains(out, "retired") {
		t.Errorf("retire: %s", out)
	}
}

func TestKeysByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ0UxE5kWyYxcTjF0BzvN4xEGGAhnnuTX5ySDyX/iNQ ada@laptop\n"
	if r := p.run(line, "ssh-key", "add", "-"); r.code != 0 || !strings.Contains(r.out, "SHA256:") {
		t.Errorf("exit %d %s %s", r.code, r.out, r.errs)
	}
	if r := p.run("-----BEGIN OPENSSH PRIVATE KEY-----\n", "ssh-key", "add", "-"); r.code != 2 ||
		!strings.Contains(r.errs, "not sent") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if out := p.ok("ssh-key", "list"); !strings.Contains(out, "ada@laptop") {
		t.Errorf("list:\n%s", out)
	}
	tok := p.json("token", "create", "ci")
	p.ok("token", "list")
	p.ok("token", "revoke", tok["id"].(string))
}

// TestUsage: what a program can rely on when a command line is wrong.
func TestUsage(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"nonsense":                                 {2, "muster --help"},
		"offers --nonsense":                        {2, "--help"},
		"offers --lmit 3":                          {2, "did you mean --limit?"},
		"cluster create --on-node-failur x":        {2, "did you mean --on-node-failure?"},
		"offers gpu_modle=H100":                    {2, "gpu_model"},
		"offers --sort relability":                 {2, "reliability"},
		"offers a b":                               {2, "quotes"},
		"offers gpu_model==H100":                   {2, ""},
		"offers -o xml":                            {2, "--output must be"},
		"clstr":                                    {2, "did you mean muster cluster?"},
		"cluster relase":                           {2, "did you mean muster cluster release?"},
		"profile use nobody":                       {3, "profile \"nobody\" not found"},
		"cluster list --profile nobody":            {1, "muster login --profile nobody"},
		"login --profile a/b http://x":             {2, "cannot name a profile"},
		"cluster nonsense":                         {2, "--help"},
		"cluster show":                             {2, "CLUSTER"},
		"cluster show nobody":                      {3, "nobody"},
		"cluster show cl_nonsense":                 {3, ""},
		"cluster create python train.py":           {2, "-- python train.py"},
		"cluster create --budget 1e3":              {2, "--budget"},
		"cluster create --max-duration soon":       {2, "--max-duration"},
		"cluster create --nodes 0 --image ''":      {2, "image"},
		"cluster create -f /nonexistent":           {2, "nonexistent"},
		"cluster create --quote x":                 {2, "q_"},
		"host show nobody":                         {3, "nobody"},
		"host enroll":                              {2, "region"},
		"billing topup ten":                        {2, "AMOUNT"},
		"billing topup 0.001":                      {2, ""},
		"token create":                             {2, "NAME"},
		"token create x --scope root":              {2, "scopes"},
		"token revoke x":                           {2, "tok_"},
		"ssh-key delete x":                         {2, "key_"},
		"cluster list --server http://127.0.0.1:1": {1, "no token"},
	} {
		t.Run(line, func(t *testing.T) {
			r := p.run("", strings.Fields(line)...)
			if r.code != want.code || !strings.Contains(r.errs, want.says) || !strings.HasPrefix(r.errs, "muster: ") {
				t.Errorf("exit %d, want %d\n%s", r.code, want.code, r.errs)
			}
		})
	}
	if r := p.runWith([]string{"MUSTER_SERVER=http://127.0.0.1:1", "MUSTER_TOKEN=x"}, "", "offers"); r.code != 1 ||
		!strings.Contains(r.errs, "cannot be reached") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	for _, args := range [][]string{{"clusters", "ls"}, {"hosts", "ls"}, {"budgets", "ls"}, {"keys", "ls"},
		{"org", "members", "ls"}, {"payouts", "get"}} {
		p.ok(args...)
	}
	for _, args := range [][]string{{}, {"help"}, {"cluster"}, {"cluster", "create", "--help"}, {"completion", "bash"}} {
		if r := p.run("", args...); r.code != 0 || r.out == "" {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.out, r.errs)
		}
	}
	if r := p.run("", "help"); !strings.Contains(r.out, "muster billing topup 25") {
		t.Errorf("help teaches nothing:\n%s", r.out)
	}
}

// token returns the token of the login in use.
func (p *testPlatform) token() string {
	p.t.Helper()
	stored, err := base.ReadLogins(base.WithEnviron(p.t.Context(), []string{"HOME=" + p.home}))
	if err != nil {
		p.t.Fatal(err)
	}
	return stored.Profiles[stored.Current].Token
}
