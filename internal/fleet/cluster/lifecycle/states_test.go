package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryClusterStateIsReachedAndLeads(t *testing.T) {
	t.Parallel()
	reached := map[State]bool{"": true}
	for grew := true; grew; {
		grew = false
		for _, tr := range transitions {
			if reached[tr.From] && !reached[tr.To] {
				reached[tr.To], grew = true, true
			}
		}
	}
	for _, s := range []State{Provisioning, Running, Degraded, Releasing, Released, Failed} {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}
		leads := slices.ContainsFunc(transitions, func(tr Transition) bool { return tr.From == s && tr.To != s })
		if leads == s.Final() {
			t.Errorf("%s: final %v, but leads on %v", s, s.Final(), leads)
		}
	}
	seen := map[[2]string]bool{}
	for _, tr := range transitions {
		k := [2]string{string(tr.From), string(tr.On)}
		if seen[k] {
			t.Errorf("%v stands twice", k)
		}
		seen[k] = true
		if tr.Title == "" || tr.By == "" {
			t.Errorf("%v has no title or no cause", k)
		}
	}
}

func TestEveryNodeStateIsReachedAndLeads(t *testing.T) {
	t.Parallel()
	reached := map[NodeState]bool{NodePending: true}
	for grew := true; grew; {
		grew = false
		for _, tr := range nodeTransitions {
			if reached[tr.From] && !reached[tr.To] {
				reached[tr.To], grew = true, true
			}
		}
	}
	seen := map[[2]string]bool{}
	for _, tr := range nodeTransitions {
		if !reached[tr.From] {
			t.Errorf("%s is never reached", tr.From)
		}
		k := [2]string{string(tr.From), string(tr.Event)}
		if seen[k] || tr.Title == "" || tr.By == "" {
			t.Errorf("%v stands twice, or has no title or cause", k)
		}
		seen[k] = true
	}
	for _, s := range []NodeState{NodePending, NodePulling, NodeStarting, NodeJoining, NodeReady, NodeLost, NodeStopping,
		NodeStopped, NodeFailed} {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}
	}
}

func TestEveryReasonHasItsSentence(t *testing.T) {
	t.Parallel()
	for r, s := range sentences {
		if s.Happened == "" || s.Do == "" {
			t.Errorf("%s lacks what happened or what to do", r)
		}
		if a, b := r.Explain(false), r.Explain(true); a == b {
			t.Errorf("%s says the same whether it ran or not: %s", r, a)
		}
	}
	// Those the REST contract names.
	for _, r := range []Reason{"completed", "workload_failed", "released_by_user", "budget_exhausted", "funds_exhausted",
		"max_duration",
		"image_not_found", "image_unauthorized", "no_disk", "command_not_found", "preflight_failed", "host_lost",
		"host_interrupted",
		"gpu_failed", "timeout"} {
		if s, ok := sentences[r]; !ok || s.NodeOnly {
			t.Errorf("%s is not a reason a cluster can end with", r)
		}
	}
}

// facts of a cluster with the given nodes at a fixed moment.
func factsOf(nodes ...NodeFacts) Facts {
	for i := range nodes {
		nodes[i].Rank = i
		nodes[i].Required = true
	}
	return Facts{Now: time.Unix(1_000_000, 0), LossGrace: time.Minute, StartSilence: time.Minute, Nodes: nodes}
}

// A rank that fails takes its peers along: it is named first, even if the report about a peer arrived first.
func TestWhatFailedFirstIsNamedFirst(t *testing.T) {
	t.Parallel()
	end := time.Unix(1_000_000, 0)
	node := func(rank, code int, after time.Duration) NodeFacts {
		return NodeFacts{
			Rank:       rank,
			State:      NodeStopped,
			Required:   true,
			Started:    true,
			Exit:       &code,
			ExitSeen:   end.Add(after),
			ReportedAt: end.Add(time.Minute),
			Reason:     ReasonExited,
		}
	}
	d, ok := Next(Running, Facts{
		Now:        end.Add(time.Minute),
		Go:         true,
		WindowOpen: true,
		Nodes: []NodeFacts{node(0, 1, 90*time.Millisecond), node(1, 0, -time.Second), node(2, 137, 0),
			node(3, 1, 80*time.Millisecond)},
	})
	if want := "rank 1 exit code 0, rank 2 exit code 137, rank 3 exit code 1, rank 0 exit code 1"; !ok ||
		d.Detail != want || !slices.Equal(d.Ranks, []int{2}) {
		t.Errorf("%v %q %v, want %q of rank 2", ok, d.Detail, d.Ranks, want)
	}
}

// TestNext gives facts for every row of the table that is not the renter's to ask for, and for what must not happen.
func TestNext(t *testing.T) {
	t.Parallel()
	shown := map[[2]string]bool{}
	now := time.Unix(1_000_000, 0)
	exit := func(code int) *int { return &code }
	ready, started := NodeFacts{State: NodeReady}, NodeFacts{State: NodeReady, Started: true, ReportedAt: now}
	lost := NodeFacts{State: NodeLost, Started: true, Reason: ReasonHostLost, Since: now.Add(-time.Second)}
	longLost := lost
	longLost.Since = now.Add(-2 * time.Minute)
	ok := NodeFacts{
		State:    NodeStopped,
		Started:  true,
		Exit:     exit(0),
		ExitSeen: now.Add(-time.Second),
		Reason:   ReasonExited,
	}
	bad := NodeFacts{
		State:    NodeStopped,
		Started:  true,
		Exit:     exit(3),
		ExitSeen: now.Add(-time.Second),
		Reason:   ReasonExited,
	}
	behind := started
	behind.ReportedAt = now.Add(-time.Minute)
	given := longLost // its lease has ended
	given.Ended = true
	blames := NodeFacts{State: NodeFailed, Reason: ReasonPreflightFailed, Since: now.Add(-10 * time.Second)}
	replace := func(f *Facts) { f.Replace, f.Ran = true, true }
	with := func(f Facts, set func(*Facts)) Facts { set(&f); return f }

	for _, c := range []struct {
		name   string
		state  State
		facts  Facts
		on     Trigger // "" = nothing
		to     State
		reason Reason
	}{
		{"waits for the last rank", Provisioning, factsOf(ready, NodeFacts{State: NodeJoining}), "", "", ""},
		{"opens the barrier", Provisioning, factsOf(ready, ready), OnAllAtBarrier, Provisioning, ""},
		{"opens it once", Provisioning, with(factsOf(ready, ready), func(f *Facts) { f.Go = true }), "", "", ""},
		{"waits for the last start", Provisioning, with(factsOf(started, ready), func(f *Facts) { f.Go = true }), "", "", ""},
		{"runs", Provisioning, with(factsOf(started, started), func(f *Facts) { f.Go = true }), OnAllStarted, Running, ""},
		{"a rank cannot start", Provisioning, factsOf(ready, NodeFacts{
			State:  NodeFailed,
			Reason: ReasonImageNotFound,
		}), OnStartFailed, Failed, ReasonImageNotFound},
		{"a rank blames the network: another has died", Provisioning, factsOf(blames, NodeFacts{
			State:  NodeFailed,
			Reason: ReasonGuestDied,
		}), OnStartFailed, Failed, ReasonGuestDied},
		{"or may have died", Provisioning, factsOf(blames, NodeFacts{
			State:      NodeJoining,
			ReportedAt: blames.Since.Add(-time.Second),
		}), "", "", ""},
		{"no, it is there", Provisioning, factsOf(blames, NodeFacts{
			State:      NodeJoining,
			ReportedAt: blames.Since.Add(time.Second),
		}), OnStartFailed, Failed, ReasonPreflightFailed},
		{"it is never heard", Provisioning, with(factsOf(blames, NodeFacts{
			State:      NodeReady,
			ReportedAt: blames.Since.Add(-time.Second),
		}), func(f *Facts) { f.StartSilence = time.Second }), OnStartFailed, Failed, ReasonPreflightFailed},
		{"all blame the network", Provisioning, factsOf(blames, blames), OnStartFailed, Failed, ReasonPreflightFailed},
		{"one blames the network, another is to be replaced", Provisioning, with(factsOf(blames, NodeFacts{
			State:  NodeFailed,
			Reason: ReasonGuestDied,
		}), replace), OnReplacing, Degraded, ReasonGuestDied},
		{"a host vanishes during the start", Provisioning, factsOf(ready, NodeFacts{
			State:  NodeLost,
			Reason: ReasonHostLost,
		}), OnStartFailed, Failed, ReasonHostLost},
		{"too slow", Provisioning, with(factsOf(ready, NodeFacts{State: NodePulling}),
			func(f *Facts) { f.StartDeadline = now }), OnStartTimeout, Failed, ReasonTimeout},
		{"fails as it starts", Provisioning, with(factsOf(bad, NodeFacts{
			State:      NodeReady,
			ReportedAt: now,
		}), func(f *Facts) { f.Go = true }), OnWorkloadFailed, Failed, ReasonWorkloadFailed},
		{"fails as it starts, again", Provisioning, with(factsOf(bad, NodeFacts{
			State:      NodeReady,
			ReportedAt: now,
		}), func(f *Facts) { f.Go, f.RestartOnFail = true, true }), OnRestart, Provisioning, ReasonWorkloadFailed},
		{"short job: runs before it completes", Provisioning, with(factsOf(ok, ok), func(f *Facts) { f.Go = true }),
			OnAllStarted, Running, ""},
		{"paid time ends before all started", Provisioning,
			with(factsOf(started, ready), func(f *Facts) { f.Go, f.RunUntil = true, now }), OnMoneyOut, Releasing,
			ReasonPlatformOutage},

		{"all is well", Running, with(factsOf(started, started), func(f *Facts) { f.WindowOpen = true }), "", "", ""},
		{"one rank done", Running, with(factsOf(ok, started), func(f *Facts) { f.WindowOpen = true }), "", "", ""},
		{"all ranks done", Running, with(factsOf(ok, ok), func(f *Facts) { f.WindowOpen = true }), OnCompleted, Releasing,
			ReasonCompleted},
		{"the command fails", Running, with(factsOf(bad, started), func(f *Facts) { f.WindowOpen = true }), OnWorkloadFailed,
			Failed, ReasonWorkloadFailed},
		{"the command fails, start again", Running, with(factsOf(bad, started),
			func(f *Facts) { f.WindowOpen, f.RestartOnFail = true, true }), OnRestart, Provisioning, ReasonWorkloadFailed},
		{"is it the command? the other rank was not heard of since", Running,
			with(factsOf(bad, behind), func(f *Facts) { f.WindowOpen = true }), "", "", ""},
		{"no, a host died", Running, with(factsOf(bad, lost), func(f *Facts) { f.WindowOpen = true }), OnNodeLost, Degraded,
			ReasonHostLost},
		{"two ranks fail", Running, with(factsOf(bad, bad), func(f *Facts) { f.WindowOpen = true }), OnWorkloadFailed, Failed,
			ReasonWorkloadFailed},
		{"money", Running, with(factsOf(started), func(f *Facts) {
			f.WindowOpen, f.Go, f.RunUntil, f.MoneyReason = true, true,
				now, ReasonBudgetExhausted
		}), OnMoneyOut, Releasing, ReasonBudgetExhausted},
		{"duration", Running, with(factsOf(started), func(f *Facts) {
			f.WindowOpen, f.Go, f.RunUntil, f.MaxUntil = true, true,
				now, now
		}), OnMaxDuration, Releasing, ReasonMaxDuration},
		{"stopped itself at the end of paid time", Running, with(factsOf(NodeFacts{
			State:   NodeStopped,
			Started: true,
			Reason:  ReasonRunUntil,
		}), func(f *Facts) { f.WindowOpen, f.RunUntil = true, now.Add(time.Second) }), "", "", ""},
		{"stopped itself though more was paid for", Running, with(factsOf(NodeFacts{
			State:   NodeStopped,
			Started: true,
			Reason:  ReasonRunUntil,
		}), func(f *Facts) { f.WindowOpen, f.RunUntil = true, now.Add(time.Hour) }), OnNodeLost, Degraded, ReasonHostLost},

		{"waits for the lost rank", Degraded, factsOf(started, lost), "", "", ""},
		{"it comes back", Degraded, factsOf(started, started), OnNodeBack, Running, ""},
		{"it does not", Degraded, factsOf(started, longLost), OnLossFinal, Failed, ReasonHostLost},
		{"its GPU is broken", Degraded, factsOf(started, NodeFacts{
			State:   NodeFailed,
			Started: true,
			Reason:  ReasonGPUFailed,
		}), OnLossFinal, Failed, ReasonGPUFailed},
		{"go on without it", Degraded, with(factsOf(started, longLost), func(f *Facts) { f.Ignore = true }), OnRankIgnored,
			Degraded, ReasonHostLost},
		{"nobody is left to go on", Degraded, with(factsOf(longLost), func(f *Facts) { f.Ignore = true }), OnLossFinal,
			Failed, ReasonHostLost},
		{"another host is to take it", Degraded, with(factsOf(started, longLost), replace), OnReplacing, Degraded,
			ReasonHostLost},
		{"not before it is lost for good", Degraded, with(factsOf(started, lost), replace), "", "", ""},
		{"not while seconds count", Degraded, with(factsOf(started, longLost),
			func(f *Facts) { replace(f); f.WindowOpen = true }), OnNodeLost, Degraded, ReasonHostLost},
		{"it waits for another host", Degraded, with(factsOf(started, given),
			func(f *Facts) { replace(f); f.ReplaceUntil = now.Add(time.Second) }), "", "", ""},
		{"one more is lost meanwhile", Degraded, with(factsOf(longLost, given),
			func(f *Facts) { replace(f); f.ReplaceUntil = now.Add(time.Second) }), OnReplacing, Degraded, ReasonHostLost},
		{"the others notice and fail", Degraded, with(factsOf(bad, given),
			func(f *Facts) { replace(f); f.ReplaceUntil = now.Add(time.Second) }), "", "", ""},
		{"no other host in time", Degraded, with(factsOf(started, given),
			func(f *Facts) { replace(f); f.ReplaceUntil = now }), OnLossFinal, Failed, ReasonHostLost},
		{"a loss that is no host's fault", Degraded, with(factsOf(started, NodeFacts{
			State:   NodeFailed,
			Started: true,
			Reason:  ReasonNoDisk,
		}), replace), OnLossFinal, Failed, ReasonNoDisk},
		{"lost while starting again", Provisioning, with(factsOf(ready, NodeFacts{
			State:  NodeLost,
			Reason: ReasonHostLost,
		}), replace), OnReplacing, Degraded, ReasonHostLost},
		{"never ran: it fails free of charge", Provisioning, with(factsOf(ready, NodeFacts{
			State:  NodeLost,
			Reason: ReasonHostLost,
		}), func(f *Facts) { f.Replace = true }), OnStartFailed, Failed, ReasonHostLost},
		{"seconds count for the others", Degraded, with(factsOf(started, longLost),
			func(f *Facts) { f.Nodes[1].Required = false }), OnResumed, Degraded, ""},
		{"one more is lost", Degraded, with(factsOf(lost, longLost),
			func(f *Facts) { f.WindowOpen, f.Nodes[1].Required = true, false }), OnNodeLost, Degraded, ReasonHostLost},
		{"the others complete", Degraded, with(factsOf(ok, longLost),
			func(f *Facts) { f.WindowOpen, f.Nodes[1].Required = true, false }), OnCompleted, Releasing, ReasonCompleted},
		{"the others fail", Degraded, with(factsOf(bad, longLost), func(f *Facts) {
			f.WindowOpen, f.Nodes[1].Required = true,
				false
		}), OnWorkloadFailed, Failed, ReasonWorkloadFailed},
		{"money while degraded", Degraded, with(factsOf(started, lost),
			func(f *Facts) { f.Go, f.RunUntil, f.MoneyReason = true, now, ReasonFundsExhausted }), OnMoneyOut, Releasing,
			ReasonFundsExhausted},
		{"duration while degraded", Degraded, with(factsOf(started, lost), func(f *Facts) { f.MaxUntil = now }),
			OnMaxDuration, Releasing, ReasonMaxDuration},

		{"hosts still clean up", Releasing, factsOf(NodeFacts{
			State: NodeStopped,
			Gone:  true,
		}, NodeFacts{State: NodeStopping}), "", "", ""},
		{"all clean", Releasing, factsOf(NodeFacts{State: NodeStopped, Gone: true}), OnAllGone, Released, ""},
		{"the end is the end", Failed, factsOf(bad), "", "", ""},
	} {
		shown[[2]string{string(c.state), string(c.on)}] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, ok := Next(c.state, c.facts)
			if ok != (c.on != "") || d.On != c.on || d.To != c.to || (ok && d.Reason != c.reason) {
				t.Errorf("Next(%s) = %v %s → %s (%s), want %s → %s (%s)", c.state, ok, d.On, d.To, d.Reason, c.on, c.to, c.reason)
			}
			again, _ := Next(c.state, c.facts)
			if diff := cmp.Diff(d, again); diff != "" {
				t.Errorf("not pure: %s", diff)
			}
		})
	}
	for _, tr := range transitions {
		if tr.On != OnRented && tr.On != OnRelease && tr.On != OnReplaced &&
			!shown[[2]string{string(tr.From), string(tr.On)}] {
			t.Errorf("no facts lead from %s by %s", tr.From, tr.On)
		}
	}
}
