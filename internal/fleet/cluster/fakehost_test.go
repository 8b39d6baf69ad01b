package cluster_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// fakeHost behaves like an agent towards the server: it reconciles its leases with the desired state, one step per
// sync, and reports them, with signed segments of what ran. It sleeps never and starts no containers.
type fakeHost struct {
	w    *world
	id   id.Host
	key  ed25519.PrivateKey
	boot string
	born time.Time // of the boot
	seq  uint64
	old  bool // its agent is of before protocols were numbered
	// uploads: after their end its runs upload; holds: its agent does not report that their GPUs are free then.
	uploads, holds bool
	// measured is what it measures with NCCL.
	measured *agentapi.NCCL

	mu      sync.Mutex
	desired agentapi.Desired
	anchor  *agentapi.Anchor
	runs    map[agentapi.LeaseRef]*run
	journal []agentapi.Segment
	// newestFirst sends one segment a report, the newest first, and keeps the others in kept.
	newestFirst bool
	kept        []agentapi.Segment
	until       map[agentapi.LeaseRef]int64 // run_until
	last        agentapi.Sync               // the last report, for repeating it
}

// run is one lease epoch on a fake host.
type run struct {
	agentapi.LeaseStatus
	spec    agentapi.LeaseSpec
	seq     int64
	endMS   int64 // of the last segment
	stopped bool  // final segment written
	// deaf is when it receives nothing from other ranks, on the server's clock. Its segments say so.
	deaf map[int]interval.Span
}

// behaviour is what a test wants of a run; it is called before each report and may change the status.
type behaviour func(h *fakeHost, r *run)

// bootMS is the host's CLOCK_BOOTTIME.
func (h *fakeHost) bootMS() int64 { return 1_000_000 + time.Since(h.born).Milliseconds() }

// sync is one round: reconcile, report, take the answer. It does what hostlink does with a report.
func (h *fakeHost) sync(ctx context.Context, c int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reconcile()
	s := h.report()
	if h.old {
		s = asOfBefore(h.w.t, s)
	}
	h.last = s
	return h.send(ctx, c, s)
}

// send delivers a report to replica c and takes the answer.
func (h *fakeHost) send(ctx context.Context, c int, s agentapi.Sync) error {
	w := h.w
	usage := metering.NewCollector(w.d)
	a, err := usage.IssueAnchor(ctx, h.id, s.BootID, s.BootMS)
	if err != nil {
		return fmt.Errorf("issue anchor: %w", err)
	}
	if a != nil && s.BootID == h.boot {
		h.anchor = a
	}
	rep, err := host.NewAgents(w.d, nil).RecordReport(ctx, h.id, s)
	if err != nil {
		return fmt.Errorf("record report: %w", err)
	}
	clusters := w.clusters[c%len(w.clusters)]
	if len(s.Segments) > 0 {
		acks, err := usage.Ingest(ctx, h.id, s.Segments, nil)
		if err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		for _, a := range acks {
			if a.Refused != "" {
				w.t.Errorf("segment of %s refused: %s", a.LeaseRef, a.Refused)
			}
		}
		h.journal, h.kept = h.kept, nil
	}
	if err := clusters.Hosts.ApplyReport(ctx, h.id, s, rep.Gone); err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	state, err := clusters.Hosts.HostState(ctx, h.id, s)
	if err != nil {
		return fmt.Errorf("host state: %w", err)
	}
	if state.Revision > h.desired.Revision {
		h.desired = *state.Desired // the report's control epoch is 0: it is always sent
	}
	for _, e := range state.Extensions {
		h.until[e.LeaseRef] = e.RunUntilMS
	}
	return nil
}

// desired is what a host should run.
func (w *world) desired(on *cluster.Clusters, h id.Host) agentapi.Desired {
	w.t.Helper()
	s, err := on.Hosts.HostState(w.ctx, h, agentapi.Sync{})
	if err != nil || s.Desired == nil {
		w.t.Fatalf("the state of %s: %+v, %v", h, s, err)
	}
	return *s.Desired
}

// storedLogs are the logs that a host may delete after its last report.
func (w *world) storedLogs(h *fakeHost) ([]agentapi.LeaseRef, error) {
	s, err := w.clusters[0].Hosts.HostState(w.ctx, h.id, h.last)
	return s.LogsStored, err
}

// report is what an agent would say now.
func (h *fakeHost) report() agentapi.Sync {
	h.seq++
	s := agentapi.Sync{
		Protocol: agentapi.Protocol, AgentVersion: "test", BootID: h.boot, BootMS: h.bootMS(), Revision: h.desired.Revision,
		Full: true, Seq: h.seq, Leases: []agentapi.LeaseStatus{}, Segments: h.journal,
	}
	if last := len(h.journal) - 1; h.newestFirst && last > 0 {
		s.Segments, h.kept = h.journal[last:], h.journal[:last]
	}
	for ref, r := range h.runs {
		if r.Gone && !r.LogKept {
			delete(h.runs, ref)
			continue
		}
		s.Leases = append(s.Leases, r.LeaseStatus)
	}
	return s
}

// reconcile makes one step towards the desired state.
func (h *fakeHost) reconcile() {
	wanted := map[agentapi.LeaseRef]agentapi.LeaseSpec{}
	for _, l := range h.desired.Leases {
		wanted[l.LeaseRef] = l
	}
	for ref, r := range h.runs {
		if _, ok := wanted[ref]; !ok {
			h.stop(r)
		}
	}
	for ref, spec := range wanted {
		r := h.runs[ref]
		if r == nil {
			r = &run{LeaseStatus: agentapi.LeaseStatus{LeaseRef: ref, State: agentapi.NodePulling}}
			h.runs[ref] = r
		} else {
			h.advance(r)
		}
		r.spec = spec
		if b := h.w.behaviour(spec.Rank); b != nil {
			b(h, r)
		}
		h.prove(r, false)
	}
}

func (h *fakeHost) advance(r *run) {
	switch r.State {
	case agentapi.NodePulling:
		r.State, r.ImageDigest = agentapi.NodeStarting, "sha256:0"
	case agentapi.NodeStarting:
		r.State, r.WGKey, r.Endpoints = agentapi.NodeJoining, "key-"+r.Lease, []string{"192.0.2.1:51820"}
	case agentapi.NodeJoining:
		for _, p := range r.spec.Network.Peers {
			if p.Key == "" {
				r.Progress.WaitingFor = fmt.Sprintf("rank %d has not joined", p.Rank)
				return
			}
		}
		r.State, r.AtBarrier = agentapi.NodeReady, true
		r.Preflight = &agentapi.Preflight{OK: true, BusbwGbps: 10 + float64(r.spec.Rank), PairGbps: pairs(r.spec)}
		if r.spec.Network.NCCL != nil {
			r.Preflight.NCCL = h.measured
		}
	case agentapi.NodeReady:
		if r.spec.Go && !r.Started {
			r.Started, r.Good = true, true
			r.endMS = h.serverMS()
		}
	}
}

// stop ends a run the server no longer wants; its log is kept only when a test says so.
func (h *fakeHost) stop(r *run) {
	switch {
	case r.State != agentapi.NodeStopping && r.State != agentapi.NodeStopped && r.State != agentapi.NodeFailed:
		r.Good = false
		h.prove(r, true)
		r.State = agentapi.NodeStopping
	case h.uploads:
		h.prove(r, true)
		r.State, r.GPUsFree = agentapi.NodeStopped, !h.holds
		r.Progress = agentapi.Progress{Uploads: &agentapi.Uploads{Files: 2, Bytes: 7000, Problem: "bucket out: 503"}}
	default:
		h.prove(r, true)
		r.State, r.Gone = agentapi.NodeStopped, true
	}
}

// fail ends a run for a reason of the host.
func (h *fakeHost) fail(r *run, reason string) {
	h.prove(r, true)
	r.State, r.Reason, r.Good = agentapi.NodeFailed, reason, false
}

// exit ends the command.
func (h *fakeHost) exit(r *run, code int) {
	if code != 0 { // a rank that ended with 0 stays proven until the cluster ends
		h.prove(r, true)
	}
	r.State, r.Reason, r.ExitCode, r.Good = agentapi.NodeStopped, agentapi.ReasonExited, &code, false
}

func (h *fakeHost) serverMS() int64 { return h.anchor.At(h.bootMS()) }

// prove writes a segment up to now into the journal.
func (h *fakeHost) prove(r *run, final bool) {
	if !r.Started || r.stopped {
		return
	}
	boot := h.bootMS()
	end := max(h.anchor.At(boot), r.endMS) // the anchor of a quicker report lies some time earlier
	if until := h.until[r.LeaseRef]; until > 0 && end > until {
		end, boot, final = max(until, r.endMS), h.anchor.BootMS+until-h.anchor.ServerMS, true
	}
	if end <= r.endMS && !final {
		return
	}
	for end-r.endMS > 290_000 { // a segment is of at most 300 s
		h.segment(r, r.endMS+290_000, h.anchor.BootMS+r.endMS+290_000-h.anchor.ServerMS, false)
	}
	h.segment(r, end, boot, final)
	r.stopped = final
}

// segment signs the time up to end.
func (h *fakeHost) segment(r *run, end, boot int64, final bool) {
	r.seq++
	seg := agentapi.Segment{
		Lease:     r.Lease,
		Epoch:     r.Epoch,
		BootID:    h.boot,
		Seq:       r.seq,
		Anchor:    h.anchor.Number,
		BootEndMS: boot,
		StartMS:   r.endMS,
		EndMS:     end,
		Final:     final,
	}
	var deaf []agentapi.DeafSpan
	for rank, s := range r.deaf {
		s = s.And(interval.Span{Start: r.endMS - 8000, End: end}) // it is noticed late
		toBoot := h.anchor.BootMS - h.anchor.ServerMS
		deaf = append(deaf, agentapi.DeafSpan{Rank: rank, FromBootMS: s.Start + toBoot, ToBootMS: s.End + toBoot})
	}
	if deaf = agentapi.MergeDeaf(deaf); len(deaf) > 0 {
		seg.Facts = &agentapi.Facts{Up: true, Deaf: deaf}
	}
	seg.Sign(h.id.String(), h.key)
	h.journal = append(h.journal, seg)
	r.endMS = end
}

// reboot loses every container: the host's memory of runs and boot id are new.
func (h *fakeHost) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boot, h.born, h.anchor = "boot-"+id.New[id.Claim]().String(), time.Now(), nil
	for _, r := range h.runs {
		r.State, r.Reason, r.Good, r.stopped = agentapi.NodeFailed, agentapi.ReasonHostInterrupted, false, true
	}
}

// pairs are what a rank measured to each other one.
func pairs(spec agentapi.LeaseSpec) []float64 {
	out := make([]float64, spec.Nodes)
	for i := range out {
		if i != spec.Rank {
			out[i] = 10
		}
	}
	return out
}
