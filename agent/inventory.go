package agent

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// inventories are the inventories that the host sends.
type inventories struct {
	read   func(context.Context) agentapi.Inventory
	link   Link
	gpus   GPUDiagnosis
	memory *memoryWatch
	runs   *runs
	log    *slog.Logger
	due    chan struct{} // one must be sent
}

const (
	inventoryEvery = time.Hour
	inventoryRetry = 10 * time.Second
	// problemsEvery is how often a host with problems looks whether it still has them.
	problemsEvery = time.Minute
)

// run sends the host's inventory: when the link comes up, when a GPU's health changes, when its problems do,
// and every hour.
func (v *inventories) run(ctx context.Context) {
	held := backoff{log: v.log, what: "inventories"}
	for inv := v.look(ctx); ; inv = v.look(ctx) {
		wait := inventoryEvery
		err := v.link.Inventory(ctx, inv)
		if held.wait(ctx, err) {
			continue
		}
		if err != nil {
			v.log.Debug("inventory not sent", "err", err)
			wait = inventoryRetry
		}
		if !v.wait(ctx, wait, inv.Problems) {
			return
		}
	}
}

// look reads the host's inventory.
func (v *inventories) look(ctx context.Context) agentapi.Inventory {
	inv := v.read(ctx)
	inv.Problems = append(inv.Problems, v.memory.problems()...)
	return inv
}

// sameProblem ignores the evidence, which may be a number that changes all the time.
func sameProblem(a, b agentapi.Problem) bool { return a.Code == b.Code && a.Cause == b.Cause }

// wait waits until the inventory is due: what may have changed it has happened, the host's problems are not
// those that were sent, or the time is over. It returns false if ctx ended.
func (v *inventories) wait(ctx context.Context, wait time.Duration, sent []agentapi.Problem) bool {
	due := time.NewTimer(wait)
	defer due.Stop()
	var again <-chan time.Time
	if len(sent) > 0 {
		t := time.NewTicker(problemsEvery)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case <-due.C:
			return true
		case <-again:
			if !slices.EqualFunc(v.look(ctx).Problems, sent, sameProblem) {
				return true
			}
		case <-v.due:
			return true
		case <-v.gpus.Changed():
			poke(v.runs.report)
			v.runs.kickAll()
			return true
		case <-ctx.Done():
			return false
		}
	}
}
