package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// Contest is the status of a GPU whose UUID is listed by hosts of several organisations. Hosts report their own GPUs,
// so being the first to list a GPU does not prove ownership.
type Contest string

const (
	// NotContested is a GPU that no other organisation lists.
	NotContested Contest = ""
	// Challenger is a GPU that another organisation listed earlier. It is not offered.
	Challenger Contest = "challenger"
	// Holder is a GPU that was listed first, but was never rented to another organisation. It is not offered either.
	Holder Contest = "holder"
	// Incumbent is a GPU that was listed first and was rented to and billed to another organisation, or that staff awarded
	// to its organisation. It is still offered, so that listing a running host's GPUs cannot take the host off the market.
	Incumbent Contest = "incumbent"
)

// Offered reports whether a GPU of this status may be rented.
func (c Contest) Offered() bool { return c == NotContested || c == Incumbent }

// ContestedGPU is a contested GPU on one of the hosts that list it, as staff see it.
type ContestedGPU struct {
	UUID      string
	Contest   Contest
	Model     string
	Host      id.Host
	HostName  string
	HostState State
	Org       id.Org
	OrgName   string
	ListedAt  time.Time
	// Leases is how many leases of other organisations were billed for it on this host, Billed for how long.
	Leases int
	Billed time.Duration

	// Awarded reports whether staff awarded the GPU to this organisation; AwardReason and AwardedAt are those of the last
	// award to any organisation, "" and nil if there was none.
	Awarded     bool
	AwardReason string
	AwardedAt   *time.Time
}

// ContestedGPUs returns at most limit GPUs that hosts of several organisations list. GPUs with the same UUID are
// adjacent, in the order in which they were listed.
func ContestedGPUs(ctx context.Context, q *dbq.Queries, limit int) ([]ContestedGPU, error) {
	rows, err := q.ContestedGPUs(ctx, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("contested GPUs: %w", err)
	}
	out := make([]ContestedGPU, len(rows))
	for i, r := range rows {
		out[i] = ContestedGPU{
			UUID: r.UUID, Contest: Contest(r.Contest), Model: r.Model, Host: r.HostID, HostName: r.HostName,
			HostState: State(r.HostState), Org: r.OrgID, OrgName: r.OrgName, ListedAt: r.CreatedAt.UTC(),
			Leases: int(r.Leases), Billed: time.Duration(r.BilledMs) * time.Millisecond,
			Awarded: r.Awarded, AwardReason: r.AwardReason, AwardedAt: r.DecidedAt,
		}
	}
	return out, nil
}

// AwardGPU records a decision of staff: host to has the GPU with this UUID. Its GPU is offered, and those of other
// hosts that list the UUID are not; leases that run on those continue. The award applies to the host's organisation
// until the next one. Faults: NotFound if the host does not list the UUID, Invalid without a reason.
func AwardGPU(ctx context.Context, d *db.DB, uuid string, to id.Host, why string) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return award(ctx, tx, uuid, to, why) })
}

// maxContested bounds the list of contested GPUs.
const maxContested = 200

// Contested returns the contested GPUs with their evidence, at most 200: see ContestedGPUs. Fault: Forbidden unless who
// is staff.
func (x *Hosts) Contested(ctx context.Context, who account.Principal) ([]ContestedGPU, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ContestedGPUs(ctx, x.db.Q, maxContested)
}

// OwnContested returns the contested GPUs of hosts of who's organisation, at most 200, without leases, awards and the
// other organisations.
func (x *Hosts) OwnContested(ctx context.Context, who account.Principal) ([]ContestedGPU, error) {
	rows, err := x.db.Q.ContestedGPUsOfOrg(ctx, who.Org, maxContested)
	if err != nil {
		return nil, fmt.Errorf("read contested GPUs of %s: %w", who.Org, err)
	}
	out := make([]ContestedGPU, len(rows))
	for i, r := range rows {
		out[i] = ContestedGPU{
			UUID: r.UUID, Contest: Contest(r.Contest), Model: r.Model, Host: r.HostID, HostName: r.HostName,
			HostState: State(r.HostState), Org: who.Org, OrgName: r.OrgName, ListedAt: r.CreatedAt.UTC(),
		}
	}
	return out, nil
}

// AwardGPU records that who, a member of staff, decided that host to has the GPU with this UUID: see AwardGPU. Faults:
// those of AwardGPU, and Forbidden unless who is staff.
func (x *Hosts) AwardGPU(ctx context.Context, who account.Principal, uuid string, to id.Host, why string,
	once idem.Request) (id.Host, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return to, idem.Outcome{}, err
	}
	return idem.Once(ctx, x.db, once, func(ctx context.Context, tx *db.Tx) (id.Host, error) {
		if err := award(ctx, tx, uuid, to, why); err != nil {
			return to, err
		}
		return to, audit.Record(ctx, tx, who.Event("gpu.award", to.String(), map[string]any{"gpu": uuid, "reason": why}))
	})
}

func award(ctx context.Context, tx *db.Tx, uuid string, to id.Host, why string) error {
	if why == "" {
		return fault.InvalidField("why", "say why; both operators read it")
	}
	rows, err := tx.Q.LockGPUsOfUUID(ctx, uuid)
	if err != nil {
		return fmt.Errorf("award %s: %w", uuid, err)
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
	// Update the losers first: a unique index allows one row to hold the UUID.
	if err := tx.Q.SetContest(ctx, string(Challenger), id.UUIDs(losers...)); err != nil {
		return fmt.Errorf("award %s: %w", uuid, err)
	}
	if err := tx.Q.SetContest(ctx, string(standing), id.UUIDs(winner...)); err != nil {
		return fmt.Errorf("award %s: %w", uuid, err)
	}
	if err := tx.Q.PutGPUAward(ctx, uuid, owner, why); err != nil {
		return fmt.Errorf("award %s: %w", uuid, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	// Each decision is news, also the second one of a day.
	key := uuid + ":" + now.UTC().Format(time.RFC3339Nano)
	for _, r := range rows {
		title := fmt.Sprintf("GPU %s is another operator's", uuid)
		if r.HostID == to {
			title = fmt.Sprintf("GPU %s is yours", uuid)
		}
		e := contestEvent(r.OrgID, r.HostID, "gpu.award", uuid)
		err := notifyContest(ctx, tx, e, key, title, "Staff decided: "+why)
		if err != nil {
			return err
		}
	}
	return nil
}

// contest returns the status of a GPU that a host lists for the first time and that another host holds. If that host is
// of another organisation, contest makes its GPU the holder or incumbent and notifies both organisations, unless the
// host is gone: see takeOver. Fault: Conflict if it is of the same organisation and is not gone.
func contest(ctx context.Context, tx *db.Tx, host id.Host, holder dbq.HoldersOfUUIDsRow) (Contest, error) {
	uuid := holder.UUID
	if took, err := takeOver(ctx, tx, uuid, holder); err != nil || took {
		return NotContested, err
	}
	if holder.SameOrg {
		return "", refused(fault.Conflict, "gpu_active", "GPU %s is enrolled with your host %s: retire that one, or wait "+
			"until it has not reported for %d minutes.", uuid, holder.HostName, int(ownHostGone.Minutes()))
	}
	standing, err := tx.Q.DefendGPU(ctx, holder.ID)
	if err != nil {
		return "", fmt.Errorf("contest %s: %w", uuid, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return "", err
	}
	// Send one notice per GPU and day, however many hosts list the GPU.
	key := uuid + ":" + now.UTC().Format(time.DateOnly)
	title := fmt.Sprintf("GPU %s is listed by two operators", uuid)
	body := "A host of another operator lists this GPU, too. It is not offered until we have decided whose it is; " +
		"leases that run go on. Write to us with what shows that it is yours."
	mine := contestEvent(holder.MyOrg, host, "gpu.contest", uuid)
	if err := notifyContest(ctx, tx, mine, key, title, body); err != nil {
		return "", err
	}
	if Contest(standing) == Incumbent {
		body = "A host of another operator lists this GPU, too. It is offered as before, because it was rented on your " +
			"host already. We decide whose it is."
	}
	theirs := contestEvent(holder.OrgID, holder.HostID, "gpu.contest", uuid)
	return Challenger, notifyContest(ctx, tx, theirs, key, title, body)
}

// notifyContest notifies the organisation of a host about a GPU that two operators list, and records e, the act on that
// host: once per act and key.
func notifyContest(ctx context.Context, tx *db.Tx, e audit.Event, key, title, body string) error {
	added, err := notify.Add(ctx, tx, notify.Notice{
		Org: e.Org, Key: e.Action + ":" + key, Severity: notify.Bad, Title: title + ".", Body: body, Object: e.Object,
	})
	if err != nil || !added {
		return err
	}
	return audit.Record(ctx, tx, e)
}

// contestEvent is an act about a GPU that is contested on a host.
func contestEvent(org id.Org, host id.Host, act, uuid string) audit.Event {
	return audit.Event{Org: org, Action: act, Object: host.String(), Detail: map[string]any{"gpu": uuid}}
}
