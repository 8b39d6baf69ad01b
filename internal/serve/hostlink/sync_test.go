package hostlink_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func (s *site) lease(a *agent) id.Lease {
	s.t.Helper()
	_, v := fleettest.Lease(s.t, s.d, a.Host, s.org)
	return v
}

func status(v id.Lease) agentapi.LeaseStatus {
	return agentapi.LeaseStatus{LeaseRef: agentapi.LeaseRef{Lease: v.String(), Epoch: 1}, State: agentapi.NodeReady}
}

func TestARaisedRevisionWakesTheHostWhichGetsItsDesiredState(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	if r := a.sync(agentapi.Sync{Full: true, Revision: 0}); r.Desired != nil || r.Revision != 0 {
		t.Fatalf("nothing is wanted yet: %+v", r)
	}
	err := s.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return fleettest.RaiseRevision(ctx, tx, s.link.Bus(), a.Host)
	})
	if err != nil {
		t.Fatal(err)
	}
	if w := within(t, "a wake", a.wakes); w.Revision != 1 || w.Watch {
		t.Errorf("%+v", w)
	}
	r := a.sync(agentapi.Sync{Revision: 0})
	if r.Desired == nil || r.Desired.Revision != 1 || r.Desired.ControlEpoch != 1 || r.Revision != 1 ||
		len(r.Desired.Leases) != 1 {
		t.Errorf("%+v", r)
	}
	if r.Anchor == nil || r.Anchor.BootID != "boot" || len(r.Extensions) != 1 || r.Extensions[0].RelayToken != "renewed" {
		t.Errorf("anchor or extensions: %+v", r)
	}
	if r := a.sync(agentapi.Sync{Revision: 1}); r.Desired != nil {
		t.Error("desired state again, though the host has seen it")
	}
	// The database lost commits: the host has seen more. It keeps what it runs.
	if r := a.sync(agentapi.Sync{Revision: 5}); r.Desired != nil || r.Revision != 1 {
		t.Errorf("a host was sent back: %+v", r)
	}
}

// After a restore an operator raises the control epoch: a host that has seen more gets what this database wants, and
// what it knows of the other history proves nothing.
func TestARaisedControlEpochIsFollowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := s.d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	mustReport := func() (yes bool) {
		t.Helper()
		if err := s.d.Pool.QueryRow(t.Context(), "SELECT needs_full_report FROM host WHERE id = $1",
			a.Host).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	a.sync(agentapi.Sync{Full: true})
	exec("UPDATE host SET revision = 3, needs_full_report = true WHERE id = $1", a.Host)
	if r := a.sync(agentapi.Sync{Revision: 5}); r.Desired != nil || r.ControlEpoch != 1 {
		t.Fatalf("before: %+v", r)
	}
	exec("UPDATE control SET epoch = 7")
	a.sync(agentapi.Sync{Revision: 5}) // the replica reads the new epoch
	r := a.sync(agentapi.Sync{Full: true, Revision: 5})
	if r.ControlEpoch != 7 || r.Desired == nil || r.Desired.ControlEpoch != 7 || r.Desired.Revision != 3 {
		t.Fatalf("raised: %+v", r)
	}
	if !mustReport() {
		t.Error("a report in knowledge of another history counts as complete")
	}
	if r := a.sync(agentapi.Sync{ControlEpoch: 7, Revision: 3, Full: true}); r.Desired != nil || r.ControlEpoch != 7 {
		t.Errorf("followed: %+v", r)
	}
	if mustReport() {
		t.Error("a complete report does not count")
	}
}

func TestStatusUsageAndHealthAreAcknowledgedApart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	v := s.lease(a)
	gpus, err := host.New(s.d, nil).Get(t.Context(), account.Principal{Org: s.org}, a.Host)
	if err != nil {
		t.Fatal(err)
	}
	report := agentapi.Sync{
		Seq: 3, Leases: []agentapi.LeaseStatus{status(v)},
		Segments: []agentapi.Segment{{Lease: v.String(), Epoch: 1, BootID: "boot", Seq: 4}},
		Health:   []agentapi.HealthEvent{{Seq: 2, GPU: gpus.GPUs[0].UUID, Kind: "xid", Xid: 79, State: host.Quarantined}},
	}
	type acks struct {
		Status, Health uint64
		Usage          int64
	}
	get := func() acks {
		t.Helper()
		r := a.sync(report)
		out := acks{r.StatusAck, r.HealthAck, 0}
		for _, u := range r.UsageAcks {
			out.Usage = u.Through
		}
		if r.NextSyncMS <= 13_500 || r.NextSyncMS > 15_000 {
			t.Errorf("next sync in %d ms", r.NextSyncMS)
		}
		return out
	}
	for _, tc := range []struct {
		name            string
		observe, ingest error
		want            acks
	}{
		{"all well", nil, nil, acks{3, 2, 4}},
		{"status fails", errBroken, nil, acks{0, 2, 4}},
		{"usage fails", nil, errBroken, acks{3, 2, 0}},
		{"both fail", errBroken, errBroken, acks{0, 2, 0}},
	} {
		s.w.fail(tc.observe, tc.ingest)
		if diff := cmp.Diff(tc.want, get()); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	// A status attests that its host received from every rank except where its segments say otherwise: it waits for those.
	report.Segments[0].Facts = &agentapi.Facts{Up: true, Deaf: []agentapi.DeafSpan{{Rank: 1, ToBootMS: 8000}}}
	s.w.fail(nil, errBroken)
	if diff := cmp.Diff(acks{0, 2, 0}, get()); diff != "" {
		t.Errorf("usage fails that tells of deafness: %s", diff)
	}
}

func TestSync_IsRefusedIfItsHostCannotBe(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	for name, v := range map[string]any{
		"not an object":    "x",
		"no boot":          agentapi.Sync{Protocol: 1},
		"a clock too far":  agentapi.Sync{BootID: "b", BootMS: 1 << 52},
		"a newer protocol": agentapi.Sync{Protocol: agentapi.Protocol + 1, BootID: "b"},
		"a seq of text":    map[string]any{"boot_id": "b", "seq": "1"},
	} {
		var r agentapi.SyncReply
		a.request(agentapi.SubjectSync(a.Host.String()), v, &r)
		if r.Error == "" || r.StatusAck != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Whatever a report says of one lease, the others are stored, acknowledged and extended; and the lease counts as one of
// which something is on the host.
func TestSync_ABadLeaseCostsOnlyItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	good, bad := s.lease(a), s.lease(a)
	for name, part := range map[string]string{
		"unknown state":       `"epoch":1,"state":"dancing"`,
		"epoch 0":             `"epoch":0,"state":"ready"`,
		"an epoch too large":  `"epoch":1e30,"state":"ready"`,
		"an exit too large":   `"epoch":1,"state":"stopped","exit_code":99999999999999999999`,
		"a list for a text":   `"epoch":1,"state":"ready","detail":["x"]`,
		"a time out of range": `"epoch":1,"state":"ready","start_boot_ms":9000000000000000000`,
		"negative traffic":    `"epoch":1,"state":"ready","traffic":{"up_bytes":-1}`,
	} {
		var r agentapi.SyncReply
		a.request(agentapi.SubjectSync(a.Host.String()), json.RawMessage(fmt.Sprintf(`{"protocol":2,"boot_id":"boot",
			"control_epoch":1,"full":true,"seq":7,"leases":[{"lease":%q,%s},{"lease":%q,"epoch":1,"state":"ready"},
			{"lease":"no lease","epoch":1,"state":"ready"}]}`, bad, part, good)), &r)
		if r.Error != "" || r.StatusAck != 7 || len(r.Extensions) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		seen := s.w.seen()
		got := seen[len(seen)-1]
		want := []agentapi.LeaseStatus{{LeaseRef: agentapi.LeaseRef{Lease: bad.String()}}, status(good)}
		if diff := cmp.Diff(want, got.Leases); diff != "" || !got.Full {
			t.Errorf("%s: full %v, %s", name, got.Full, diff)
		}
	}
}

// Texts of a report are chosen by renters, images, stores and drivers. None makes the report unreadable.
func TestSync_AnyTextIsStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	v := s.lease(a)
	for _, text := range []string{`"\\u0000"`, `"\u0000"`, `"\ud800"`, `"` + "\xff\xfe" + `"`, `"` + strings.Repeat("é", 300) + `"`,
		`"\u2028<&>"`} {
		var r agentapi.SyncReply
		a.request(agentapi.SubjectSync(a.Host.String()), wire(fmt.Sprintf(`{"protocol":2,"boot_id":"boot","boot_ms":1,
			"control_epoch":1,"seq":3,"leases":[{"lease":%q,"epoch":1,"state":"failed","reason":%[2]s,"detail":%[2]s,
			"trouble":%[2]s,"trouble_detail":%[2]s,"leaving":%[2]s,"progress":{"step":%[2]s,"waiting_for":%[2]s,
			"layers":[{"digest":%[2]s}],"uploads":{"problem":%[2]s}},"preflight":{"detail":%[2]s},"endpoints":[%[2]s],
			"not_uploaded":[{"name":%[2]s,"detail":%[2]s}]}],
			"health":[{"seq":1,"gpu":%[2]s,"kind":%[2]s,"state":"healthy","detail":%[2]s}],
			"engine_away":{"detail":%[2]s},"agent_version":%[2]s,"capabilities":[%[2]s],"update":{"detail":%[2]s}}`, v, text)), &r)
		if r.Error != "" || r.StatusAck != 3 || r.HealthAck != 1 {
			t.Errorf("%s: %+v", text, r)
		}
		seen := s.w.seen()
		if got := seen[len(seen)-1].Leases; len(got) != 1 || got[0].State != agentapi.NodeFailed ||
			len(got[0].Detail) > 500 || strings.ContainsRune(got[0].Detail+got[0].Endpoints[0], 0) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// wire is JSON as it is sent, valid or not.
type wire string

func TestInventoryOverTheLink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	var ack agentapi.Ack
	a.request(agentapi.SubjectInventory(a.Host.String()), fleettest.Inventory(3), &ack)
	if n := s.count("SELECT count(*) FROM gpu WHERE host_id = $1 AND present", a.Host); ack.Error != "" || n != 3 {
		t.Errorf("%q, %d GPUs", ack.Error, n)
	}
	bad := fleettest.Inventory(1)
	bad.GPUs[0].UUID = "serial 7"
	a.request(agentapi.SubjectInventory(a.Host.String()), bad, &ack)
	if ack.Error == "" {
		t.Error("a bad inventory was taken")
	}
}

func TestTelemetryIsKeptAndWatchedLive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	live := s.link.Bus().WatchTelemetry(t.Context(), a.Host)
	if w := within(t, "being told that somebody watches", a.wakes); !w.Watch {
		t.Errorf("%+v", w)
	}
	gpus, err := host.New(s.d, nil).Get(t.Context(), account.Principal{Org: s.org}, a.Host)
	if err != nil {
		t.Fatal(err)
	}
	util, power := 93, int64(412_500)
	sample := agentapi.GPUSample{GPU: gpus.GPUs[0].UUID, AtMS: time.Now().UnixMilli(), Util: &util, PowerMW: &power}
	foreign := sample
	foreign.GPU = "GPU-" + uuid.NewString()
	data, _ := json.Marshal(agentapi.Telemetry{Samples: []agentapi.GPUSample{sample, sample, foreign}})
	if err := a.nc.Publish(agentapi.SubjectTelemetry(a.Host.String()), data); err != nil {
		t.Fatal(err)
	}
	if got := within(t, "a live batch", live); len(got.Samples) != 3 || *got.Samples[0].Util != 93 {
		t.Errorf("%+v", got)
	}
	var kept []host.Series
	eventually(t, "history", func() bool {
		kept, err = host.Telemetry(t.Context(), s.d.Q, []id.GPU{gpus.GPUs[0].ID}, time.Now().Add(-time.Hour),
			time.Now().Add(time.Hour), 0)
		return err == nil && len(kept[0].Samples) > 0
	})
	if v := kept[0].Samples; len(v) != 1 || v[0].Util != 93 || v[0].PowerW != 412 || v[0].MemMB != -1 {
		t.Errorf("%+v", v)
	}
}

func TestEnrolmentOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	srv := httptest.NewTLSServer(s.link.EnrollHandler())
	defer srv.Close()
	post := func(body any) (int, map[string]any) {
		t.Helper()
		data, _ := json.Marshal(body)
		resp, err := srv.Client().Post(srv.URL+agentapi.EnrollPath, "application/json", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		if want := "application/problem+json"; resp.StatusCode != 200 && resp.Header.Get("Content-Type") != want {
			t.Errorf("content type %q", resp.Header.Get("Content-Type"))
		}
		return resp.StatusCode, out
	}
	token := fleettest.Token(t, s.d, s.org, s.user, "over-http")
	keys := fleettest.NewAgent(t)
	code, reply := post(keys.Request(t, fleettest.Origin, token, fleettest.Inventory(1)))
	if code != 200 || reply["name"] != "over-http" || reply["stream_domain"] != "localhost" {
		t.Fatalf("%d %v", code, reply)
	}
	var err error
	if keys.Host, err = id.Parse[id.Host](reply["host"].(string)); err != nil {
		t.Fatal(err)
	}
	for _, url := range reply["nats"].([]any) { // both ways in: TLS, and WebSocket over TLS
		a := &agent{Agent: keys, t: t, instance: uuid.NewString()}
		if err := a.dial(url.(string), reply["nats_ca"].(string)); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if r := a.sync(agentapi.Sync{Seq: 5}); r.StatusAck != 5 {
			t.Errorf("%s: %+v", url, r)
		}
		a.nc.Close()
		eventually(t, "disconnected", func() bool { return !s.host(a).Status.Connected })
	}
	if n := len(reply["nats"].([]any)); n != 2 {
		t.Errorf("%d addresses", n)
	}
	for name, tc := range map[string]struct {
		body   any
		status int
		reason any
	}{
		"used":      {fleettest.NewAgent(t).Request(t, fleettest.Origin, token, fleettest.Inventory(1)), 409, "token_used"},
		"malformed": {"x", 422, nil},
		"huge":      {string(make([]byte, 300<<10)), 413, nil},
	} {
		if code, out := post(tc.body); code != tc.status || out["reason"] != tc.reason || out["detail"] == "" ||
			out["code"] == "" {
			t.Errorf("%s: %d %v", name, code, out)
		}
	}
}

// What a lease did on the host's own line is stored with the report that contains it; a lease of another host is left
// out.
func TestTrafficIsTakenFromReports(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.enroll(), s.enroll()
	v := s.lease(a)
	st := status(v)
	if r := a.sync(agentapi.Sync{}); len(r.Popular) != 1 {
		t.Errorf("an idle host is told no popular images: %+v", r)
	}
	st.Traffic = &agentapi.Traffic{Opened: 3, Refused: 1, Up: 10, Down: 20}
	for _, x := range []*agent{a, b} {
		if r := x.sync(agentapi.Sync{Seq: 1, Leases: []agentapi.LeaseStatus{st}}); r.StatusAck != 1 || len(r.Popular) != 0 {
			t.Errorf("%+v", r)
		}
	}
	got, err := host.New(s.d, nil).Traffic(t.Context(), account.Principal{Org: s.org}, a.Host, 10)
	if err != nil || len(got) != 1 || got[0].LeaseID != v || got[0].Connections != 3 || got[0].DownBytes != 20 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := host.New(s.d, nil).Traffic(t.Context(), account.Principal{Org: s.org}, b.Host, 10); err != nil ||
		len(got) != 0 {
		t.Errorf("of the other host: %+v, %v", got, err)
	}
	a.sync(agentapi.Sync{Seq: 2, Pulled: &agentapi.Pulled{Counter: "a", Bytes: 7}})
	if m, err := host.New(s.d, nil).DataMonth(t.Context(), account.Principal{Org: s.org}, a.Host); err != nil ||
		m.PulledBytes == nil || *m.PulledBytes != 7 ||
		m.DownBytes != 20 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, p := range []agentapi.Pulled{{
		Counter: "",
		Bytes:   8,
	}, {Counter: "a", Bytes: -1}, {Counter: strings.Repeat("a", 65), Bytes: 8}} {
		if r := a.sync(agentapi.Sync{Seq: 3, Pulled: &p}); r.Error == "" {
			t.Errorf("%+v: %+v", p, r)
		}
	}
	st.Traffic.Up = -1
	if r := a.sync(agentapi.Sync{Seq: 2, Leases: []agentapi.LeaseStatus{st}}); r.Error != "" || r.StatusAck != 2 {
		t.Errorf("%+v", r)
	}
}

// A report as the first agents made it, without a protocol and all that came later, is taken and answered in full; its
// operator is notified to update it, once.
func TestAnOldAgentIsAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	lease := s.lease(a)
	for seq := range 2 {
		text := fmt.Sprintf(`{"agent_version":"v0.1.0","boot_id":"boot","boot_ms":61000,"control_epoch":1,"revision":0,"full":true,"seq":%d,
			"leases":[{"lease":%q,"epoch":1,"state":"ready","progress":{},"at_barrier":true,"started":true,"good":true,"image_digest":"sha256:0"}]}`, seq+1, lease)
		var r agentapi.SyncReply
		a.request(agentapi.SubjectSync(a.Host.String()), json.RawMessage(text), &r)
		if r.Error != "" || r.StatusAck != uint64(seq+1) || r.Anchor == nil || len(r.Extensions) != 1 ||
			r.Extensions[0].RunUntilMS != 42 {
			t.Errorf("%+v", r)
		}
	}
	if got := s.w.seen(); len(got) != 2 || len(got[1].Leases) != 1 || !got[1].Leases[0].Good ||
		got[1].Leases[0].Lease != lease.String() {
		t.Errorf("%+v", got)
	}
	if n := s.alerts("host.agent_too_old"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if h := s.host(a); h.Status.Protocol != 0 || !strings.Contains(h.Unsellable(time.Now()), "too old") {
		t.Errorf("%+v", h.Status)
	}
	a.sync(agentapi.Sync{Full: true, Seq: 3})
	if h := s.host(a); h.Status.Protocol != agentapi.Protocol || strings.Contains(h.Unsellable(time.Now()), "too old") {
		t.Errorf("updated: %+v", h.Status)
	}
	if r := a.sync(agentapi.Sync{Full: true, Seq: 4}); r.Error != "" || s.alerts("host.agent_too_old") != 1 {
		t.Errorf("told again: %+v", r)
	}
}

// A host's operator is notified once that its container engine does not answer, with the agent's words.
func TestAnEngineThatIsAwayIsToldToTheOperator(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	away := &agentapi.EngineAway{Detail: "dial unix /var/run/docker.sock: connection refused"}
	for seq := range uint64(2) {
		if r := a.sync(agentapi.Sync{Seq: seq + 1, EngineAway: away}); r.Error != "" || r.StatusAck != seq+1 {
			t.Errorf("%+v", r)
		}
	}
	if n := s.alerts("host.engine_away"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if h := s.host(a); h.EngineAway != away.Detail {
		t.Errorf("%q", h.EngineAway)
	}
}
