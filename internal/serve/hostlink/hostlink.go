// Package hostlink is the server's side of the connections to hosts: the NATS server to which they connect (embedded or
// external), authorisation of connections and messages, and dispatch of messages to handlers.
//
// Invariants:
//   - A host is identified by its link key: it signs the nonce of each connection, and the signature is verified
//     against the keys in PostgreSQL. There is one connection per key: a second one is refused and the operator is
//     notified. A revoked key's connection is closed.
//   - A host publishes only on its own four subjects and subscribes only to its own. Its identity comes from the
//     subject, which NATS enforces, never from the message.
//   - Responses go only to reply subjects under the host's own inbox, so that no host can make the server publish on
//     another's subjects.
//   - Status, usage and health of one sync are committed and acknowledged separately.
//   - The package contains no rules about clusters or money and does not access the database: it checks and translates.
package hostlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// Agents is the part of host.Agents that hostlink uses.
type Agents interface {
	VerifyLink(ctx context.Context, linkKey string, nonce, signature []byte) (host.Link, error)
	OpenSession(ctx context.Context, l host.Link, c host.Conn) (int64, error)
	CloseSession(ctx context.Context, h id.Host, server string, client uint64) (bool, error)
	UnwelcomeHosts(ctx context.Context) ([]host.Unwelcome, error)
	Alert(ctx context.Context, h id.Host, v host.Alert) error
	RecordReport(ctx context.Context, h id.Host, s agentapi.Sync) (host.Report, error)
	RecordHealth(ctx context.Context, h id.Host, s agentapi.Sync) (ack uint64, err error)
	UpdateOrder(ctx context.Context, h id.Host, s agentapi.Sync) (*agentapi.UpdateOrder, error)
	RecordRequalified(ctx context.Context, h id.Host, results []agentapi.GPUResult) error
	telemetryStore
}

// Clusters is the part of package cluster that hostlink uses.
type Clusters interface {
	// ApplyReport applies a host's report about its leases and ignores leases of other hosts. gone are the ended leases of
	// which nothing is left, according to the host's full report.
	ApplyReport(ctx context.Context, host id.Host, s agentapi.Sync, gone []id.Lease) error
	// HostState returns the state that the host needs in response to its report.
	HostState(ctx context.Context, host id.Host, s agentapi.Sync) (cluster.HostState, error)
	// WakeState returns what the host should run; nil if its agent does not accept that with a wake.
	WakeState(ctx context.Context, host id.Host) (*agentapi.Desired, error)
}

// Quiet is the part of package cluster that takes reports in which nothing is new; see cluster.QuietReports.
type Quiet interface {
	Take(ctx context.Context, host id.Host, s agentapi.Sync, within time.Duration) (a cluster.QuietAnswer, quiet bool)
	Flush(ctx context.Context) error
}

// Market is the part of package market that hostlink uses.
type Market interface {
	EnrollHost(ctx context.Context, p host.EnrollPolicy, r agentapi.EnrollRequest) (host.Host, error)
	UpdateInventory(ctx context.Context, h id.Host, inv agentapi.Inventory) (changed bool, err error)
	// PopularFor returns public images that an idle host may download in advance, and the limit of their size in bytes.
	PopularFor(ctx context.Context, h id.Host, capabilities []string) (images []string, bytes int64, err error)
	// Popular returns the same for a host without a data cap.
	Popular(ctx context.Context) (images []string, err error)
}

// Metering is the part of package metering that hostlink uses.
type Metering interface {
	// Ingest stores a host's usage segments. signature is the host's signature over the list, or nil.
	Ingest(ctx context.Context, host id.Host, segs []agentapi.Segment, signature []byte) ([]agentapi.UsageAck, error)
	IssueAnchor(ctx context.Context, host id.Host, bootID string, bootMS int64) (*agentapi.Anchor, error)
}

// Volumes is the part of package volume that hostlink uses.
type Volumes interface {
	// Serve answers a host's request about a volume of one of its leases.
	Serve(ctx context.Context, host id.Host, r agentapi.VolumeRequest) agentapi.VolumeReply
}

// Shared is the part of package sharedfs that hostlink uses.
type Shared interface {
	RecordHost(ctx context.Context, host id.Host, all []agentapi.SharedFS) error
	RecordUse(ctx context.Context, host id.Host, uses []agentapi.SharedUse) error
}

// Domain is the domain packages to which the link passes messages.
type Domain struct {
	Agents   Agents
	Clusters Clusters
	Metering Metering
	Market   Market
	Volumes  Volumes // nil = requests about volumes are not answered
	Shared   Shared  // nil = shared file systems are not stored
	Quiet    Quiet   // nil = every report is handled as one that changes something
}

// Link is this replica's side of the connections to hosts.
type Link struct {
	cfg     Config
	log     *slog.Logger
	keys    *keys
	all     *host.Replicas
	replica id.Replica
	ns      *server.Server // nil with an external NATS
	// One connection per NATS account: for authorisation, to hosts, between replicas, and for the system account.
	auth, hosts, replicas, sys *nats.Conn

	// epoch is the database's control epoch as last read: every PulseEvery, and with each host's state.
	epoch atomic.Int64

	bus      *bus.Bus
	agents   Agents // these seven are set by Start
	clusters Clusters
	metering Metering
	market   Market
	volumes  Volumes
	shared   Shared
	quiet    Quiet

	// Each kind of message has a queue of its own, so that none delays the others.
	reports, inventories, telemetry, doors, disconnects, data *queue
	// wakes has the wakes that wait for the state that they carry.
	wakes     *queue
	admission *admission

	subs     []*nats.Subscription // set by Start
	limits   *limits
	recorder *recorder

	ctx    context.Context // cancelled by Stop
	cancel context.CancelFunc
	loops  sync.WaitGroup
}

// The number of messages of each kind that one replica handles at the same time.
const (
	reportWorkers     = 32
	inventoryWorkers  = 64 // they are stored in sets
	telemetryWorkers  = 4
	doorWorkers       = 32
	disconnectWorkers = 4
	wakeWorkers       = 8
	dataWorkers       = 16
)

// Open starts the embedded NATS server or connects to the external one, and returns when the bus works. Hosts are
// refused until Start. The caller must call Stop.
func Open(ctx context.Context, all *host.Replicas, cfg Config) (*Link, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	k, err := deriveKeys(cfg.Secret)
	if err != nil {
		return nil, err
	}
	l := &Link{
		cfg: cfg, log: cfg.Log, keys: k, all: all, replica: id.New[id.Replica](),
		limits: newLimits(cfg.Now),
	}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.makeQueues()
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(err, l.Stop(context.WithoutCancel(ctx)))
	}
	return l, nil
}

func (l *Link) open(ctx context.Context) error {
	epoch, _, err := l.all.ControlEpoch(ctx)
	if err != nil {
		return err
	}
	l.epoch.Store(epoch)
	// Insert the replica's row before reading the others: if two replicas start together, at least one sees the other's
	// route.
	if err := l.beat(ctx); err != nil {
		return err
	}
	if l.cfg.NATSURL == "" {
		if err := l.startServer(ctx); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		to   **nats.Conn
		role string
	}{{&l.auth, roleAuth}, {&l.hosts, roleHosts}, {&l.replicas, roleReplicas}, {&l.sys, roleSys}} {
		nc, err := l.connect(ctx, c.role)
		if err != nil {
			return fmt.Errorf("connect to NATS as %s: %w", c.role, err)
		}
		*c.to = nc
	}
	if limit := l.hosts.MaxPayload(); limit < agentapi.MaxMessage {
		l.log.Warn("NATS carries smaller messages than this version expects: include the output of muster server "+
			"nats-config again", "bytes", limit, "want", agentapi.MaxMessage)
	}
	l.bus = bus.New(l.hosts, l.replicas)
	l.loop(l.cfg.HeartbeatEvery, func(ctx context.Context) {
		if err := l.beat(ctx); err != nil {
			l.log.Error("replica heartbeat failed", "err", err)
		}
	})
	return nil
}

// Bus returns the bus over this link's NATS. It works until Stop.
func (l *Link) Bus() *bus.Bus { return l.bus }

// StateLimit returns the largest desired state that the link carries, in bytes.
func (l *Link) StateLimit() int { return agentapi.StateLimit(l.hosts.MaxPayload()) }

// Start begins to accept hosts and to handle their messages.
func (l *Link) Start(d Domain) error {
	l.agents, l.clusters, l.metering, l.market, l.quiet = d.Agents, d.Clusters, d.Metering, d.Market, d.Quiet
	l.volumes, l.shared = d.Volumes, d.Shared
	l.recorder = newRecorder(d.Agents, l.cfg.Now, l.log)
	l.bus.WakeWith(l.wake)
	for _, s := range []struct {
		nc      *nats.Conn
		subject string
		handle  nats.MsgHandler
	}{
		{l.hosts, agentapi.SubjectSync("*"), l.onHost(l.reports, l.handleSync)},
		{l.hosts, agentapi.SubjectInventory("*"), l.onHost(l.inventories, l.handleInventory)},
		{l.hosts, agentapi.SubjectTelemetry("*"), l.onHost(l.telemetry, l.handleTelemetry)},
		{l.hosts, agentapi.SubjectVolume("*"), l.onHost(l.data, l.handleVolume)},
		{l.hosts, subjectPulse, func(m *nats.Msg) { l.reports.add(id.Host{}, m, l.handlePulse) }},
		{l.sys, "$SYS.ACCOUNT." + accountHosts + ".DISCONNECT", func(m *nats.Msg) {
			l.disconnects.add(id.Host{}, m, l.handleDisconnect)
		}},
		// This must be the last: when the first host is admitted, all other handlers must be ready.
		{l.auth, server.AuthCalloutSubject, func(m *nats.Msg) {
			l.admission.arrived()
			l.doors.add(id.Host{}, m, l.handleAuth)
		}},
	} {
		// With a queue group, exactly one replica handles each message.
		sub, err := s.nc.QueueSubscribe(s.subject, "hostlink", s.handle)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", s.subject, err)
		}
		l.subs = append(l.subs, sub)
		if err := s.nc.FlushTimeout(5 * time.Second); err != nil {
			return fmt.Errorf("listen on %s: %w", s.subject, err)
		}
	}
	l.admission.start()
	l.watchKeys()
	l.pulse(l.ctx)
	l.loop(host.PulseEvery, l.pulse)
	l.loop(l.cfg.HeartbeatEvery, l.closeUnwelcome)
	l.loop(6*l.cfg.HeartbeatEvery, l.closeDeparted)
	l.loop(l.cfg.FlushEvery, l.recorder.flush)
	if l.quiet != nil {
		l.loop(quietFlush, l.flushQuiet)
	}
	return nil
}

// Stop stops accepting messages, waits for those being handled, stores what is in memory, and closes all
// connections.
func (l *Link) Stop(ctx context.Context) error {
	// First, so that no connection is being authorised when NATS shuts down: nats-server 2.15.2 panics then
	// (newRespInbox reads what its shutdown has removed).
	l.admission.close()
	for _, sub := range l.subs {
		_ = sub.Unsubscribe() // if the connection is closed, so are its subscriptions
	}
	queues := l.queues()
	for _, q := range queues {
		q.close()
	}
	done := make(chan struct{})
	go func() {
		for _, q := range queues {
			q.handled.Wait()
		}
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("gave up waiting for messages that are being handled: %w", ctx.Err())
	}
	l.cancel()
	l.loops.Wait()
	if l.recorder != nil {
		l.recorder.flush(ctx)
	}
	if l.quiet != nil {
		l.flushQuiet(ctx)
	}
	for _, nc := range []*nats.Conn{l.auth, l.hosts, l.replicas, l.sys} {
		if nc != nil {
			nc.Close()
		}
	}
	server := ""
	if l.ns != nil {
		l.ns.Shutdown()
		l.ns.WaitForShutdown()
		server = l.ns.ID()
	}
	return errors.Join(err, l.all.Remove(ctx, l.replica, server))
}

// makeQueues makes the queues of messages.
func (l *Link) makeQueues() {
	reports, connections := l.ctx, l.ctx
	if f := l.cfg.ReportContext; f != nil {
		reports = f(reports)
	}
	if f := l.cfg.ConnectContext; f != nil {
		connections = f(connections)
	}
	c := queueConfig{ctx: reports, patience: agentapi.RequestWait, longest: maxBacklog, now: l.cfg.Now}
	with := func(name string, workers int, refuse func(*nats.Msg, time.Duration)) *queue {
		c := c
		c.name, c.workers, c.refuse = name, workers, refuse
		return newQueue(c)
	}
	l.reports = with("sync", reportWorkers, l.postpone)
	l.inventories = with("inventory", inventoryWorkers, l.refuse)
	l.data = with("volume", dataWorkers, l.refuse)
	l.telemetry = with("telemetry", telemetryWorkers, nil)
	c.ctx, c.patience = connections, connectWait
	l.doors = with("connect", doorWorkers, l.refuseConnection)
	c.patience = agentapi.MaxRetry
	l.disconnects = with("disconnect", disconnectWorkers, nil)
	c.longest = wakeBacklog // a wake waits as long as it takes: if it were dropped, the host would learn later
	l.wakes = with("wake", wakeWorkers, l.wakePlain)
	l.admission = newAdmission(maxAdmissions, l.cfg.Now, func() bool {
		return l.doors.behind(enoughWork) || l.inventories.behind(enoughWork) || l.reports.behind(enoughWork)
	})
}

func (l *Link) queues() []*queue {
	return []*queue{l.reports, l.inventories, l.telemetry, l.doors, l.disconnects, l.data, l.wakes}
}

// loop calls f at intervals until Stop.
func (l *Link) loop(every time.Duration, f func(context.Context)) {
	l.loops.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-l.ctx.Done():
				return
			case <-t.C:
				f(l.ctx)
			}
		}
	})
}
