package host_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func enroll(t *testing.T, d *db.DB, p host.EnrollPolicy, r agentapi.EnrollRequest) (h host.Host, err error) {
	t.Helper()
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		h, err = host.Enroll(ctx, tx, p, r)
		return err
	})
	return h, err
}

func reason(err error) string {
	f := fault.From(err)
	if f == nil {
		return ""
	}
	s, _ := f.Extra["reason"].(string)
	return s
}

func TestEnrollMakesAHost(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	req := a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, "rack-1"), fleettest.Inventory(4))
	h, err := enroll(t, d, fleettest.Policy, req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "rack-1" || got.State != host.Enrolled || !got.Simulated || len(got.GPUs) != 4 || got.CPUCores != 64 {
		t.Errorf("host %+v", got)
	}
	if g := got.GPUs[0]; !g.NVLink || g.NVLinkGbps != 200 || g.PCIeGen != 5 || g.Claim != "" || !g.Present {
		t.Errorf("GPU %+v", g)
	}
	// The answer was lost: the agent asks again with the same keys.
	again, err := enroll(t, d, fleettest.Policy, req)
	if err != nil || again.ID != h.ID {
		t.Errorf("asked again: %v, %v", again.ID, err)
	}
	other, _ := fleettest.Org(t, d)
	if _, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: other}, h.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org's host: %v", err)
	}
}

func TestEnrollRefuses(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	first := fleettest.NewAgent(t)
	used := fleettest.Token(t, d, org, user, "first")
	firstReq := first.Request(t, fleettest.Origin, used, fleettest.Inventory(1))
	if _, err := enroll(t, d, fleettest.Policy, firstReq); err != nil {
		t.Fatal(err)
	}
	expired := fleettest.Token(t, d, org, user, "expired")
	if _, err := d.Pool.Exec(t.Context(), "UPDATE enrollment_token SET expires_at = clock_timestamp() WHERE name = "+
		"'expired'"); err != nil {
		t.Fatal(err)
	}
	fresh := func() string { return fleettest.Token(t, d, org, user, "") }
	real := fleettest.Inventory(1)
	real.Simulated, real.AttachMode, real.ToolkitVersion = false, "cdi", "1.17.7"
	unknown := real
	unknown.ToolkitVersion = ""
	strict := fleettest.Policy
	strict.AllowSimulated = false
	type requestOf func(a *fleettest.Agent) agentapi.EnrollRequest
	with := func(origin, token string, inv agentapi.Inventory) requestOf {
		return func(a *fleettest.Agent) agentapi.EnrollRequest { return a.Request(t, origin, token, inv) }
	}
	twice := fleettest.Inventory(2)
	twice.GPUs[1].UUID = twice.GPUs[0].UUID

	for name, tc := range map[string]struct {
		policy  host.EnrollPolicy
		request requestOf
		kind    fault.Kind
		reason  string
		says    string
	}{
		"used token": {fleettest.Policy, with(fleettest.Origin, used, fleettest.Inventory(1)), fault.Conflict, "token_used",
			"used at"},
		"expired token": {fleettest.Policy, with(fleettest.Origin, expired, fleettest.Inventory(1)), fault.Unauthorized,
			"token_expired", "expired at"},
		"unknown token": {fleettest.Policy, with(fleettest.Origin, "mst_enroll_made_up_by_somebody", fleettest.Inventory(1)),
			fault.Unauthorized, "token_unknown", "not known"},
		"other origin": {fleettest.Policy, with("https://elsewhere.test", fresh(), fleettest.Inventory(1)),
			fault.Unauthorized, "bad_proof", fleettest.Origin},
		"simulated": {strict, with(fleettest.Origin, fresh(), fleettest.Inventory(1)), fault.Forbidden, "simulated",
			"sandbox"},
		"old toolkit": {fleettest.Policy, with(fleettest.Origin, fresh(), real), fault.Conflict, "toolkit",
			"CVE-2025-23266"},
		"hidden toolkit": {fleettest.Policy, with(fleettest.Origin, fresh(), unknown), fault.Conflict, "toolkit", "1.17.8"},
		"GPU elsewhere": {fleettest.Policy, with(fleettest.Origin, fresh(), firstReq.Inventory), fault.Conflict, "gpu_active",
			"enrolled with your host first"},
		"GPU twice": {fleettest.Policy, with(fleettest.Origin, fresh(), twice), fault.Invalid, "", "twice"},
		"stolen attestation key": {fleettest.Policy, func(a *fleettest.Agent) agentapi.EnrollRequest {
			r := a.Request(t, fleettest.Origin, fresh(), fleettest.Inventory(1))
			r.AttestKey = firstReq.AttestKey
			return r
		}, fault.Unauthorized, "bad_proof", "both keys"},
		"stolen link key": {fleettest.Policy, func(a *fleettest.Agent) agentapi.EnrollRequest {
			r := a.Request(t, fleettest.Origin, fresh(), fleettest.Inventory(1))
			r.LinkKey = firstReq.LinkKey
			return r
		}, fault.Unauthorized, "bad_proof", "both keys"},
		"known link key": {fleettest.Policy, func(a *fleettest.Agent) agentapi.EnrollRequest {
			return first.Request(t, fleettest.Origin, fresh(), fleettest.Inventory(1))
		}, fault.Conflict, "key_known", "another host"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := enroll(t, d, tc.policy, tc.request(fleettest.NewAgent(t)))
			if !fault.Is(err, tc.kind) || reason(err) != tc.reason || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("want %s %s saying %q, got %v (%s)", tc.kind, tc.reason, tc.says, err, reason(err))
			}
		})
	}
	var hosts int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM host").Scan(&hosts); err != nil || hosts != 1 {
		t.Errorf("%d hosts, %v", hosts, err)
	}
}

func TestARefusedEnrolmentKeepsItsToken(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	fleettest.Enroll(t, d, org, user, 1)
	token := fleettest.Token(t, d, org, user, "")
	a := fleettest.NewAgent(t)
	bad := fleettest.Inventory(1)
	bad.AttachMode, bad.ToolkitVersion = "nvidia", "1.16.0"
	if _, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, token, bad)); reason(err) != "toolkit" {
		t.Fatal(err)
	}
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, token, fleettest.Inventory(1)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(h.Name, "machine-") {
		t.Errorf("a second machine with the same hostname is called %q", h.Name)
	}
}

func TestCreateEnrollmentChecks(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	create := func(n host.NewEnrollment) (host.Enrollment, error) {
		e, _, err := host.New(d, nil).CreateEnrollment(t.Context(), account.Principal{
			Org:  org,
			User: user,
		}, n, idem.Request{})
		return e, err
	}
	if _, err := create(host.NewEnrollment{
		Name:   "Not A Name",
		Fabric: "-",
	}); !fault.Is(err, fault.Invalid) || len(fault.From(err).Fields) != 3 {
		t.Errorf("bad fields: %v", err)
	}
	e, err := create(host.NewEnrollment{Region: "eu", TTL: 48 * time.Hour})
	if err != nil || len(e.Token) < 40 {
		t.Fatalf("%+v, %v", e, err)
	}
	var left time.Duration
	if err := d.Pool.QueryRow(t.Context(), "SELECT expires_at - clock_timestamp() FROM enrollment_token WHERE id = $1",
		e.ID).Scan(&left); err != nil || left > host.MaxEnrollmentTTL {
		t.Errorf("lives %s, %v", left, err)
	}
}

func TestRetireFreesGPUsAndKeys(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	inv := fleettest.Inventory(2)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, "one"), inv))
	if err != nil {
		t.Fatal(err)
	}
	a.Host = h.ID
	quote := id.New[id.Quote]().UUID()
	do := func(f func(ctx context.Context, tx *db.Tx) error) error { return d.InTx(t.Context(), f) }
	if err := do(func(ctx context.Context, tx *db.Tx) error {
		return fleettest.Claim(ctx, tx, host.ForMaintenance, quote, fleettest.GPUs(t, d, h.ID)[:1], nil)
	}); err != nil {
		t.Fatal(err)
	}
	retire := func() error {
		_, _, err := host.New(d, nil).Act(t.Context(), account.Principal{Org: org}, h.ID, host.Action{Name: host.Retire},
			idem.Request{})
		return err
	}
	if err := retire(); !fault.Is(err, fault.Conflict) {
		t.Fatalf("retired while in use: %v", err)
	}
	if err := do(func(ctx context.Context, tx *db.Tx) error {
		return host.EndClaims(ctx, tx, quote, "done")
	}); err != nil {
		t.Fatal(err)
	}
	if err := retire(); err != nil {
		t.Fatal(err)
	}
	if keys, err := host.LinkKeys(t.Context(), d.Q, h.ID); err != nil || len(keys) != 0 {
		t.Errorf("keys left: %v, %v", keys, err)
	}
	if _, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
		fleettest.Token(t, d, org, user, "one"), inv)); err != nil {
		t.Errorf("name and GPUs are not free: %v", err)
	}
}

func TestEnrollmentProgress(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	e, _, err := host.New(d, nil).CreateEnrollment(t.Context(), account.Principal{Org: org, User: user},
		host.NewEnrollment{Name: "rack-1", Region: "eu-west"}, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.New(d, nil).Enrollment(t.Context(), account.Principal{Org: org}, e.ID)
	if err != nil || p.UsedAt != nil || p.Host != nil || p.Expired {
		t.Errorf("before it is used: %+v, %v", p, err)
	}
	h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin, e.Token,
		fleettest.Inventory(2)))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = host.New(d, nil).Enrollment(t.Context(), account.Principal{Org: org}, e.ID); err != nil ||
		p.UsedAt == nil || p.Host == nil ||
		p.Host.ID != h.ID || len(p.Host.GPUs) != 2 {
		t.Errorf("after it is used: %+v, %v", p, err)
	}
	other, _ := fleettest.Org(t, d)
	if _, err := host.New(d, nil).Enrollment(t.Context(), account.Principal{Org: other}, e.ID); !fault.Is(err,
		fault.NotFound) {
		t.Errorf("another org's enrolment: %v", err)
	}
}
