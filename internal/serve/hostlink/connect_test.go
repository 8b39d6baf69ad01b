package hostlink_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func TestSessionsAreCountedAndEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	if h := s.host(a); !h.Status.Connected || h.Status.Session != 1 || h.Status.Address != "127.0.0.1" {
		t.Errorf("connected: %+v", h.Status)
	}
	a.nc.Close()
	eventually(t, "the end of the connection is noticed", func() bool { return !s.host(a).Status.Connected })
	if err := a.connect(s.link); err != nil {
		t.Fatal(err)
	}
	if h := s.host(a); !h.Status.Connected || h.Status.Session != 2 {
		t.Errorf("again: %+v", h.Status)
	}
}

func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	a.nc.Close()
	eventually(t, "disconnected", func() bool { return !s.host(a).Status.Connected })
	var old []byte
	keep := func(nonce []byte) ([]byte, error) {
		sig, err := a.Link.Sign(nonce)
		old = sig
		return sig, err
	}
	if err := a.connect(s.link, nats.Nkey(a.LinkKey(), keep)); err != nil {
		t.Fatal(err)
	}
	a.nc.Close()
	eventually(t, "disconnected", func() bool { return !s.host(a).Status.Connected })
	stranger := fleettest.NewAgent(t)
	for name, opt := range map[string]nats.Option{
		"a replayed signature":    nats.Nkey(a.LinkKey(), func([]byte) ([]byte, error) { return old, nil }),
		"another key's signature": nats.Nkey(a.LinkKey(), stranger.Link.Sign),
		"a key nobody enrolled":   nats.Nkey(stranger.LinkKey(), stranger.Link.Sign),
		"no key":                  func(o *nats.Options) error { o.Nkey, o.SignatureCB = "", nil; return nil },
		"a user name and password": func(o *nats.Options) error {
			o.Nkey, o.SignatureCB, o.User, o.Password = "", nil, "auth", "auth"
			return nil
		},
	} {
		if err := a.connect(s.link, opt); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h := s.host(a); h.Status.Session != 2 {
		t.Errorf("a refused connection counts as a session: %+v", h.Status)
	}
}

func TestASecondConnectionWithOneKeyIsRefusedAndTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	clone := &agent{Agent: a.Agent, t: t, instance: uuid.NewString()}
	for range 2 {
		if err := clone.connect(s.link); !errors.Is(err, nats.ErrAuthorization) {
			t.Fatalf("the clone connected: %v", err)
		}
	}
	if n := s.alerts("host.second_connection"); n != 1 {
		t.Errorf("%d alerts, want 1 a day", n)
	}
	if r := a.sync(agentapi.Sync{Seq: 7}); r.StatusAck != 7 {
		t.Errorf("the first connection suffers: %+v", r)
	}
	a.nc.Close()
	eventually(t, "disconnected", func() bool { return !s.host(a).Status.Connected })
	if err := clone.connect(s.link); err != nil {
		t.Errorf("the key's only connection is refused: %v", err)
	}
}

// An agent whose network changed comes back before the server notices that the old connection is dead.
func TestTheSameRunOfAnAgentReplacesItsOwnConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	old := a.closed
	if err := a.connect(s.link); err != nil {
		t.Fatal(err)
	}
	within(t, "the old connection is closed", old)
	if h := s.host(a); !h.Status.Connected || h.Status.Session != 2 {
		t.Errorf("%+v", h.Status)
	}
	if r := a.sync(agentapi.Sync{Seq: 1}); r.StatusAck != 1 {
		t.Errorf("%+v", r)
	}
	if n := s.alerts("host.second_connection"); n != 0 {
		t.Error("a reconnect raised an alert")
	}
}

func TestARevokedKeyIsKickedAndStaysOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	_, _, err := host.New(s.d, s.link.Bus()).Act(t.Context(), account.Principal{Org: s.org}, a.Host,
		host.Action{Name: host.Retire}, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the connection is closed", a.closed)
	if err := a.connect(s.link); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("came back: %v", err)
	}
}

func TestAHostReachesOnlyItsOwnSubjects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.enroll(), s.enroll()
	before := s.host(b).Status.LastSyncAt
	other := b.Host.String()
	for _, subject := range []string{
		agentapi.SubjectSync(other), agentapi.SubjectWake(other), agentapi.SubjectDial(other), agentapi.InboxPrefix(other) +
			".x",
		agentapi.SubjectWake(a.Host.String()), "muster.changed.keys.x", "$SYS.REQ.USER.AUTH", "anything",
	} {
		if err := a.nc.Publish(subject, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if err := within(t, "refused "+subject, a.errs); !strings.Contains(err.Error(), "Permissions Violation for Publish") {
			t.Errorf("publish on %s: %v", subject, err)
		}
	}
	for _, subject := range []string{agentapi.SubjectWake(other), agentapi.SubjectDial(other),
		agentapi.InboxPrefix(other) + ".>", "host.>", ">", "_INBOX.>"} {
		if _, err := a.nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := within(t, "refused "+subject, a.errs); !strings.Contains(err.Error(),
			"Permissions Violation for Subscription") {
			t.Errorf("subscribe to %s: %v", subject, err)
		}
	}
	if after := s.host(b).Status.LastSyncAt; after != before {
		t.Error("one host synced in another's name")
	}
}

func TestAnswersGoOnlyToTheHostsOwnInbox(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.enroll(), s.enroll()
	got, err := b.nc.SubscribeSync(agentapi.InboxPrefix(b.Host.String()) + ".>")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{
		agentapi.InboxPrefix(b.Host.String()) + ".x", agentapi.SubjectWake(b.Host.String()),
		agentapi.SubjectSync(b.Host.String()),
		agentapi.InboxPrefix(a.Host.String()) + ".*", agentapi.InboxPrefix(a.Host.String()) + "x.y",
	} {
		if err := a.nc.PublishRequest(agentapi.SubjectSync(a.Host.String()), reply,
			[]byte(`{"protocol":1,"boot_id":"b","seq":9}`)); err != nil {
			t.Fatal(err)
		}
	}
	// What came before this is handled, or refused, before its answer.
	eventually(t, "an alert", func() bool { return s.alerts("host.foreign_reply") == 1 })
	b.sync(agentapi.Sync{})
	if n, _, _ := got.Pending(); n > 1 { // its own answer also comes here
		t.Errorf("%d messages in another host's inbox", n)
	}
	if len(b.wakes) > 0 {
		t.Error("a host woke another")
	}
	if at := s.host(a).Status.LastSyncAt; at != nil {
		t.Error("a sync with a foreign reply subject was taken")
	}
}
