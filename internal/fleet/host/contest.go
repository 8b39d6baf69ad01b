package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// Contest is how a GPU stands whose UUID hosts of several organisations list. A host says of itself which GPUs it has,
// so the first to list one does not own it.
type Contest string

const (
	// NotContested is a GPU that nobody else lists.
	NotContested Contest = ""
	// Challenger is a GPU that another organisation listed before. It is not offered.
	Challenger Contest = "challenger"
	// Holder is a GPU that was listed first and that nobody has rented there. It is not offered either.
	Holder Contest = "holder"
	// Incumbent is a GPU that was listed first and that somebody rented and was billed for, or that staff gave to its
	// organisation. It is offered as before, so that nobody takes a running host off the market by listing its GPUs.
	Incumbent Contest = "incumbent"
)

// ContestedGPU is a GPU with a contest, as staff see it.
type ContestedGPU struct {
	UUID     string
	Contest  Contest
	Model    string
	Host     id.Host
	HostName string
	Org      id.Org
	OrgName  string
	ListedAt time.Time
}

// ContestedGPUs lists the GPUs that hosts of several organisations list, at most limit, those with one UUID together
// and the first to be listed first.
func ContestedGPUs(ctx context.Context, q *dbq.Queries, limit int) ([]ContestedGPU, error) {
	rows, err := q.ContestedGPUs(ctx, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("host: contested GPUs: %w", err)
	}
	out := make([]ContestedGPU, len(rows))
	for i, r := range rows {
		out[i] = ContestedGPU{
			UUID: r.UUID, Contest: Contest(r.Contest), Model: r.Model, Host: r.HostID, HostName: r.HostName, Org: r.OrgID,
			OrgName: r.OrgName, ListedAt: r.CreatedAt.UTC(),
		}
	}
	return out, nil
}

// AwardGPU records the decision of staff that the GPU with a UUID is the one that a host lists: it is offered, and the
// others that list it are not. Leases that run on those go on to their end. The decision holds for the host's
// organisation until another is made. Faults: NotFound when the host does not list it, Invalid without a reason.
func AwardGPU(ctx context.Context, d *db.DB, uuid string, to id.Host, why string) error {
	if why == "" {
		return fault.InvalidField("why", "say why; both operators read it")
	}
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.LockGPUsOfUUID(ctx, uuid)
		if err != nil {
			return fmt.Errorf("host: award %s: %w", uuid, err)
		}
		var winner, losers []id.GPU
		var owner id.Org
		for _, r := range rows {
			if r.HostID == to {
				winner, owner = append(winner, r.ID), r.OrgID
			} else {
				losers = append(losers, r.ID)
			}
		}
		if len(winner) == 0 {
			return fault.New(fault.NotFound, "Host %s does not list %s.", to, uuid)
		}
		standing := NotContested
		if len(losers) > 0 {
			standing = Incumbent
		}
		// Losers first: one row at a time holds the UUID.
		if err := tx.Q.SetContest(ctx, string(Challenger), uuids(losers)); err != nil {
			return fmt.Errorf("host: award %s: %w", uuid, err)
		}
		if err := tx.Q.SetContest(ctx, string(standing), uuids(winner)); err != nil {
			return fmt.Errorf("host: award %s: %w", uuid, err)
		}
		if err := tx.Q.PutGPUAward(ctx, uuid, owner, why); err != nil {
			return fmt.Errorf("host: award %s: %w", uuid, err)
		}
		for _, r := range rows {
			title := fmt.Sprintf("GPU %s is another operator's", uuid)
			if r.HostID == to {
				title = fmt.Sprintf("GPU %s is yours", uuid)
			}
			if err := notifyContest(ctx, tx, r.OrgID, r.HostID, "gpu.award", uuid, title, "Staff decided: "+why); err != nil {
				return err
			}
		}
		return nil
	})
}

// contest finds how a GPU stands that a host lists for the first time, and makes the one that holds its UUID defend
// itself. Its organisations read of it. Fault: Conflict when another host of the same organisation holds the UUID.
func contest(ctx context.Context, tx *db.Tx, host id.Host, uuid string) (Contest, error) {
	holder, err := tx.Q.HolderOfUUID(ctx, host, uuid)
	if db.NoRows(err) {
		return NotContested, nil
	}
	if err != nil {
		return "", fmt.Errorf("host: who holds %s: %w", uuid, err)
	}
	if holder.SameOrg {
		return "", refused(fault.Conflict, "gpu_active", "GPU %s is enrolled with another host: retire that one first.", uuid)
	}
	standing, err := tx.Q.DefendGPU(ctx, holder.ID)
	if err != nil {
		return "", fmt.Errorf("host: contest %s: %w", uuid, err)
	}
	title := fmt.Sprintf("GPU %s is listed by two operators", uuid)
	body := "A host of another operator lists this GPU, too. It is not offered until we have decided whose it is; " +
		"leases that run go on. Write to us with what shows that it is yours."
	if err := notifyContest(ctx, tx, holder.MyOrg, host, "gpu.contest", uuid, title, body); err != nil {
		return "", err
	}
	if Contest(standing) == Incumbent {
		body = "A host of another operator lists this GPU, too. It is offered as before, because it was rented on your " +
			"host already. We decide whose it is."
	}
	return Challenger, notifyContest(ctx, tx, holder.OrgID, holder.HostID, "gpu.contest", uuid, title, body)
}

// defend makes a GPU that was inserted, and that challengers of before list, too, stand as holder or incumbent.
func defend(ctx context.Context, tx *db.Tx, host id.Host, gpu id.GPU, uuid string) error {
	challenged, err := tx.Q.IsUUIDChallenged(ctx, host, uuid)
	if err == nil && challenged {
		_, err = tx.Q.DefendGPU(ctx, gpu)
	}
	if err != nil {
		return fmt.Errorf("host: contest %s: %w", uuid, err)
	}
	return nil
}

func notifyContest(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, act, uuid, title, body string) error {
	// One notice for a GPU and a day, however many hosts somebody enrols to list it.
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	added, err := notify.Add(ctx, tx, notify.Notice{
		Org: org, Key: act + ":" + uuid + ":" + now.UTC().Format(time.DateOnly), Severity: notify.Bad, Title: title + ".",
		Body: body, Object: host.String(),
	})
	if err != nil || !added {
		return err
	}
	return audit.Record(ctx, tx, audit.Event{
		Org: org, Action: act, Object: host.String(), Detail: map[string]any{"gpu": uuid},
	})
}
