package market

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	// FreeUpload is how long after its end a lease may hold GPUs and disk for its uploads before that counts as a start
	// does.
	FreeUpload = time.Minute
	// UploadLimit is how long a host may upload after the end of a lease.
	UploadLimit = agentapi.VolumeFlushMaxS * time.Second
)

// Starts is what limits a start or a quote before it is paid for, as QueueStarts reads it.
type Starts struct {
	rules fairness.StartRules
	// own is what the organisation held without paying and what it paid, circle the same for its circle, itself
	// included.
	own, circle fairness.StartFacts
	// uploads are ended leases of the circle that hold GPUs or disk while their hosts upload.
	uploads []dbq.HeldUploadsRow
	// sizes and taken are the GPUs of the market by model, and those that starts and quotes hold which no payment covers,
	// of all organisations. Two of different circles do not see each other in taken: they may go beyond the limit by what
	// they claim at the same moment.
	sizes, taken map[string]int64
}

// QueueStarts queues the reads of Starts for an organisation whose circle is locked. sizes is what ModelSizes returned;
// renting is the quote that becomes a cluster, zero for none: it no longer counts as a quote.
func (m *Market) QueueStarts(b *pgx.Batch, rules fairness.StartRules, org id.Org, renting id.Quote,
	sizes map[string]int64) *Starts {
	s := &Starts{rules: rules, sizes: sizes}
	if rules.Window == 0 {
		return s
	}
	seconds := int64(rules.Window.Seconds())
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.OpenStarts(ctx, org, seconds)
		for _, r := range rows {
			o := fairness.OpenStart{SinceMS: r.StartFrom.UnixMilli(), GPUs: int(r.Gpus), Rate: r.Rate}
			if s.circle.Open = append(s.circle.Open, o); r.Own {
				s.own.Open = append(s.own.Open, o)
			}
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.HeldStarts(ctx, org, seconds)
		for _, r := range rows {
			s.hold(r.Own, fairness.HeldStart{EndedMS: r.EndedAt.UnixMilli(), GPUMillis: r.GPUMs, Value: money.Nano(r.Value)})
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.HeldQuotes(ctx, org, seconds, renting)
		for _, r := range rows {
			s.hold(r.Own, fairness.HeldStart{EndedMS: r.EndedAt.UnixMilli(), GPUMillis: r.GPUMs, Value: money.Nano(r.Value)})
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.HeldUploads(ctx, dbq.HeldUploadsParams{
			OrgID: org, WindowS: seconds, FlushS: int64(UploadLimit.Seconds()), FreeS: int64(FreeUpload.Seconds()),
		})
		s.uploads = rows
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		r, err := q.PaidLately(ctx, seconds, id.UUIDs(org)[0], m.cfg.Currency)
		s.circle.Paid = rules.Paid(money.Nano(r.Lately), money.Nano(r.Week))
		s.own.Paid = rules.Paid(money.Nano(r.OwnLately), money.Nano(r.OwnWeek))
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.NewStarts(ctx, renting)
		s.taken = make(map[string]int64, len(rows))
		for _, r := range rows {
			s.taken[r.GPUModel] = r.Gpus
		}
		return err
	})
	return s
}

// hold adds GPUs that the circle held without paying; own: the organisation itself held them.
func (s *Starts) hold(own bool, h fairness.HeldStart) {
	s.circle.Held = append(s.circle.Held, h)
	if own {
		s.own.Held = append(s.own.Held, h)
	}
}

// heldUpload returns what an ended lease holds without paying until now: its GPUs, or what its disk is worth.
func heldUpload(r dbq.HeldUploadsRow, now time.Time) fairness.HeldStart {
	ms := max(0, now.Sub(r.Since)).Milliseconds()
	return fairness.HeldStart{EndedMS: now.UnixMilli(), GPUMillis: ms * r.GPUThousandths / 1000,
		Value: fairness.StartValue(r.Rate, ms) * money.Nano(r.GPUThousandths) / money.Nano(1000*r.GPUCount)}
}

// Judge decides whether the organisation may claim a placement for a start or a quote now, and whether what was paid
// covers the time until it is paid for.
func (s *Starts) Judge(p Placement, now time.Time) (covered bool, err error) {
	for _, r := range s.uploads {
		s.hold(r.Own, heldUpload(r, now))
	}
	s.uploads = nil // they count once, however often a placement is judged
	v := s.rules.JudgeInCircle(s.own, s.circle, p.Rate, now.UnixMilli())
	if !v.OK {
		return false, s.errQuota(v, now)
	}
	if v.Covered {
		return true, nil
	}
	want := map[string]int64{}
	for _, n := range p.Nodes {
		want[n.Model] += int64(len(n.GPUs))
	}
	for model, n := range want {
		if room := s.rules.Room(s.sizes[model], s.taken[model]); n > room {
			return false, errNewStarts(model, room, now)
		}
	}
	return false, nil
}

// errQuota returns the fault for an organisation whose circle holds and held too many GPUs without paying. What others
// of the circle paid is not shown.
func (s *Starts) errQuota(v fairness.StartVerdict, now time.Time) error {
	at, r := time.UnixMilli(v.FreeMS).UTC(), s.rules
	own := r.Judge(s.own, 0, now.UnixMilli())
	with := ""
	if own.GPUMillis < v.GPUMillis {
		with = ", with those of other organisations that share a person or a card with yours,"
	}
	out := fault.New(fault.RateLimited, "Your clusters and quotes%s held GPUs for %d GPU-seconds in the last %s before "+
		"they ran, or without ever running. That is not billed: %d GPU-seconds are free; more has to be worth less than "+
		"what you paid for running clusters (yours: %s of %s). You can start again at %s UTC, or sooner if you have paid "+
		"more by then. Check image, registry and command.", with, v.GPUMillis/1000, hours(r.Window), r.Free,
		own.Value.Plain(), s.own.Paid.Plain(), at.Format("15:04:05"))
	out.RetryAfter = at.Sub(now)
	out.Extra = map[string]any{"limit": "start_quota", "free_at": at, "window_s": int64(r.Window.Seconds()),
		"held_gpu_s": v.GPUMillis / 1000, "free_gpu_s": r.Free, "held_value": own.Value, "paid": s.own.Paid}
	return out
}

// errNewStarts returns the fault for a start or a quote that no payment covers, while those of all organisations hold
// their part of the market. room is how many GPUs of the model it could get.
func errNewStarts(model string, room int64, now time.Time) error {
	const again = 2 * time.Minute
	f := fault.New(fault.RateLimited, "Organisations that have not yet paid for as much time as their starts and quotes "+
		"take may together hold only a part of all GPUs of a model at the same time. Of %s, %d GPUs can be started so now. "+
		"Rent fewer GPUs, or try again in two minutes; what you pay for a running cluster raises your own limit.", model,
		room)
	f.RetryAfter = again
	f.Extra = map[string]any{"limit": "start_quota", "scope": "new_organisations", "gpu_model": model, "free_gpus": room,
		"free_at": now.Add(again).UTC()}
	return f
}

// hours returns a duration for people.
func hours(d time.Duration) string {
	if h := d.Hours(); h == float64(int64(h)) && h > 1 {
		return fmt.Sprintf("%d hours", int64(h))
	}
	return d.String()
}
