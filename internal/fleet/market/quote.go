package market

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// Limits on quotes. A quote costs its renter nothing, so it must not keep GPUs off the market for long.
const (
	MaxOpenQuotes = 3                // per organisation
	maxHeld       = 10 * time.Minute // per GPU and circle of organisations, within an hour
	// minFundsMS is the time in milliseconds for which the wallet must cover the price of all open quotes of an
	// organisation, and the budget that of the quote.
	minFundsMS = 60_000
)

// Quote is an all-in price for a placement whose GPUs are claimed until the quote expires.
type Quote struct {
	ID        id.Quote
	Org       id.Org
	User      id.User
	Spec      Spec // as requested; includes the secrets while State is QuoteHeld
	Placement Placement
	State     QuoteState
	Cluster   id.Cluster // set once rented
	CreatedAt time.Time
	ExpiresAt time.Time
}

// QuoteState is the state of a quote.
type QuoteState string

const (
	QuoteHeld     QuoteState = "held"
	QuoteRented   QuoteState = "rented"
	QuoteReturned QuoteState = "returned"
	QuoteExpired  QuoteState = "expired"
)

// Quote places spec for who's organisation and claims the GPUs until the quote expires. With an idempotency key, a
// repeated call returns the same quote. The spec must be valid, as ParseQuoteSpec returns it.
//
// Faults: Invalid at ssh_key_ids and at mounts if the organisation does not have a key, a volume or a bucket, and at
// budget if it covers less than 60 s of the price; InsufficientFunds if the wallet covers less than 60 s of this and
// all other open quotes; NoCapacity if nothing fits, with explain and relaxations, or if other renters took the GPUs
// several times in a row; QuotaExceeded if the organisation has too many open quotes or quotes of its circle have kept
// one GPU for too long; RateLimited as for a rent, because a quote holds GPUs that are not paid for yet.
func (m *Market) Quote(ctx context.Context, who account.Principal, spec Spec,
	once idem.Request) (q Quote, done idem.Outcome, err error) {
	request, err := spec.Request(who.Org)
	if err != nil {
		return Quote{}, idem.Outcome{}, fault.InvalidField("gpu", "%s", err)
	}
	if err := request.readMounts(ctx, m.db.Q, spec); err != nil {
		return Quote{}, idem.Outcome{}, err
	}
	if _, err := m.quoteSizes(ctx); err != nil { // counted before the transaction, which then needs no second connection
		return Quote{}, idem.Outcome{}, err
	}
	err = m.Planning(ctx, request, func(ctx context.Context, plan Placement, refused error) error {
		q, done, err = idem.Once(ctx, m.db, once, func(ctx context.Context, tx *db.Tx) (Quote, error) {
			if _, err := account.SSHKeysByID(ctx, tx.Q, who.Org, spec.SSHKeyIDs); err != nil {
				return Quote{}, err
			}
			if refused != nil {
				return Quote{}, refused
			}
			return m.claimQuote(ctx, tx, who, spec, plan)
		})
		return err
	})
	if errors.Is(err, ErrStale) { // every plan was stale, and Planning gave up
		err = fault.Wrap(err, fault.NoCapacity, "the GPUs that fit are being taken by others at this moment: try again")
	}
	return q, done, err
}

// quoteSizes returns how many GPUs of each model the market has, if that limits quotes.
func (m *Market) quoteSizes(ctx context.Context) (map[string]int64, error) {
	if m.cfg.Starts.Window == 0 {
		return nil, nil
	}
	return m.ModelSizes(ctx)
}

// claimQuote claims the GPUs of a plan for a new quote. ErrStale means that the plan no longer fits. For faults see
// Quote.
func (m *Market) claimQuote(ctx context.Context, tx *db.Tx, who account.Principal, spec Spec,
	plan Placement) (Quote, error) {
	org := who.Org
	sizes, err := m.quoteSizes(ctx)
	if err != nil {
		return Quote{}, err
	}
	if err := account.LockCircle(ctx, tx, org); err != nil {
		return Quote{}, err
	}
	if slices.ContainsFunc(plan.Nodes, func(n Placed) bool { return n.HostOrg == org }) {
		return Quote{}, errOwnHost
	}
	if err := m.mayQuote(ctx, tx, org, spec, plan); err != nil {
		return Quote{}, err
	}
	b := &pgx.Batch{}
	hosts := m.QueueHosts(b, plan.HostIDs(), true)
	starts := m.QueueStarts(b, m.cfg.Starts, org, id.Quote{}, sizes)
	var now time.Time
	db.ReadNow(b, &now)
	if err := tx.Send(ctx, b); err != nil {
		return Quote{}, fmt.Errorf("lock hosts: %w", err)
	}
	held, err := hosts.Fit(plan)
	if err != nil {
		return Quote{}, err
	}
	covered, err := starts.Judge(held, now)
	if err != nil {
		return Quote{}, err
	}
	q := Quote{
		ID: id.New[id.Quote](), Org: org, User: who.User, Spec: spec, Placement: held, State: QuoteHeld, CreatedAt: now,
		ExpiresAt: now.Add(m.cfg.QuoteTTL),
	}
	if err := m.insertQuote(ctx, tx, q, covered); err != nil {
		return Quote{}, err
	}
	sets := held.claimSets(func(int) uuid.UUID { return q.ID.UUID() })
	if err := host.ClaimAll(ctx, tx, host.ForQuote, sets, &q.ExpiresAt); err != nil {
		return Quote{}, ClaimFailure(err, false)
	}
	return q, m.withinHoldingLimit(ctx, tx, q)
}

func (m *Market) mayQuote(ctx context.Context, tx *db.Tx, org id.Org, spec Spec, plan Placement) error {
	open, err := tx.Q.OpenQuotes(ctx, org)
	if err != nil {
		return fmt.Errorf("open quotes of %s: %w", org, err)
	}
	if len(open) >= MaxOpenQuotes {
		return fault.New(fault.QuotaExceeded, "%d quotes are open; rent or return one, or wait for it to expire", len(open))
	}
	need := money.CostCeil(plan.Rate, minFundsMS)
	if spec.Budget != nil && *spec.Budget < need {
		return fault.InvalidField("budget", "does not cover 60 seconds at %s per hour: want at least %s", plan.Rate, need)
	}
	storage, err := owed.Read(ctx, tx.Q, org)
	if err != nil {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	if err := storage.Admit(now, m.cfg.Currency); err != nil {
		return err
	}
	have, err := ledger.Spendable(ctx, tx.Q, ledger.Wallet(org, m.cfg.Currency))
	if err != nil {
		return err
	}
	for _, rate := range open { // the same credit does not back two quotes
		need += money.CostCeil(rate, minFundsMS)
	}
	if have = storage.Of(have); have < need {
		const cent = money.Unit / 100
		return fault.New(fault.InsufficientFunds, "a quote needs credit for 60 seconds, beyond that of other open quotes: "+
			"add at least %s %s",
			((need - have + cent - 1) / cent * cent).Plain(), m.cfg.Currency)
	}
	return nil
}

// withinHoldingLimit returns QuotaExceeded if the quote would keep a GPU for longer than the quotes of a circle may.
func (m *Market) withinHoldingLimit(ctx context.Context, tx *db.Tx, q Quote) error {
	seconds, err := tx.Q.HeldByQuotes(ctx, id.UUIDs(q.Org)[0], id.UUIDs(q.Placement.gpuIDs()...))
	if err != nil {
		return fmt.Errorf("holding time of %s: %w", q.Org, err)
	}
	if seconds+m.cfg.QuoteTTL.Seconds() > maxHeld.Seconds() {
		return fault.New(fault.QuotaExceeded, "your quotes have held one of these GPUs for %.0f s of the last hour; %.0f "+
			"s is the most: rent it, or ask for another",
			seconds, maxHeld.Seconds())
	}
	return nil
}

func (m *Market) insertQuote(ctx context.Context, tx *db.Tx, q Quote, covered bool) error {
	open, secrets := q.Spec.Split()
	spec, err := json.Marshal(open)
	if err != nil {
		return err
	}
	hidden, err := json.Marshal(secrets)
	if err != nil {
		return err
	}
	placement, err := json.Marshal(q.Placement)
	if err != nil {
		return err
	}
	_, err = tx.Q.InsertQuote(ctx, dbq.InsertQuoteParams{
		ID: q.ID, OrgID: q.Org, UserID: q.User, Spec: spec, Secrets: m.box.Seal(hidden, belongs(q.ID)), Placement: placement,
		GPUIds: id.UUIDs(q.Placement.gpuIDs()...), Rate: q.Placement.Rate, Unpaid: !covered, CreatedAt: q.CreatedAt,
		ExpiresAt: q.ExpiresAt,
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", q.ID, err)
	}
	return nil
}

// belongs returns the context that binds encrypted secrets to their quote.
func belongs(q id.Quote) string { return "quote:" + q.String() }

// GetQuote returns one quote of who's organisation. Fault: NotFound.
func (m *Market) GetQuote(ctx context.Context, who account.Principal, q id.Quote) (Quote, error) {
	row, err := m.db.Q.GetQuote(ctx, q, who.Org)
	if err != nil {
		return Quote{}, noQuote(q, err)
	}
	return m.quoteOf(dbq.LockQuoteRow(row))
}

func (m *Market) lockQuote(ctx context.Context, tx *db.Tx, org id.Org, q id.Quote) (Quote, error) {
	row, err := tx.Q.LockQuote(ctx, q, org)
	if err != nil {
		return Quote{}, noQuote(q, err)
	}
	return m.quoteOf(row)
}

// LockedQuote is a quote and its hosts as QueueQuote locks and reads them.
type LockedQuote struct {
	quote  Quote
	renter id.Org
	hosts  []host.Host
}

// QueueQuote queues the locking of a quote, which GetQuote has returned, and of its hosts. NotFound if the quote is
// gone.
func (m *Market) QueueQuote(b *pgx.Batch, q Quote, renter id.Org) *LockedQuote {
	l := &LockedQuote{renter: renter}
	db.Queue(b, func(ctx context.Context, dq *dbq.Queries) error {
		row, err := dq.LockQuote(ctx, q.ID, renter)
		if err != nil {
			return noQuote(q.ID, err)
		}
		l.quote, err = m.quoteOf(row)
		return err
	})
	host.QueueHosts(b, q.Placement.HostIDs(), &l.hosts)
	return l
}

// QueueRented queues the end of a quote that becomes a cluster: its claims end, so that those of the leases can begin.
func QueueRented(b *pgx.Batch, q id.Quote, cluster id.Cluster) {
	db.Queue(b, func(ctx context.Context, dq *dbq.Queries) error {
		return dq.EndQuote(ctx, string(QuoteRented), cluster, q)
	})
	host.QueueEndClaims(b, q.UUID(), host.EndRented)
}

func noQuote(q id.Quote, err error) error {
	if db.NoRows(err) {
		return fault.New(fault.NotFound, "quote not found")
	}
	return fmt.Errorf("read %s: %w", q, err)
}

func (m *Market) quoteOf(r dbq.LockQuoteRow) (Quote, error) {
	q := Quote{
		ID:        r.ID,
		Org:       r.OrgID,
		User:      r.UserID,
		State:     QuoteState(r.State),
		Cluster:   r.ClusterID,
		CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt,
	}
	if r.Due {
		q.State = QuoteExpired // even if ExpireQuotes has not marked it yet
	}
	if err := json.Unmarshal(r.Spec, &q.Spec); err != nil {
		return Quote{}, fmt.Errorf("spec of %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Placement, &q.Placement); err != nil {
		return Quote{}, fmt.Errorf("placement of %s: %w", r.ID, err)
	}
	if r.Secrets != nil {
		plain, err := m.box.Open(r.Secrets, belongs(r.ID))
		if err != nil {
			return Quote{}, fmt.Errorf("open the secrets of %s: %w", r.ID, err)
		}
		var s Secrets
		if err := json.Unmarshal(plain, &s); err != nil {
			return Quote{}, fmt.Errorf("secrets of %s have an unknown form", r.ID)
		}
		q.Spec = q.Spec.With(s)
	}
	return q, nil
}

// gpuIDs returns the ids of all GPUs of the placement.
func (p Placement) gpuIDs() []id.GPU {
	var out []id.GPU
	for _, n := range p.Nodes {
		for _, g := range n.GPUs {
			out = append(out, g.ID)
		}
	}
	return sortedUnique(out)
}

// ReturnQuote cancels a quote of who's organisation. It is no error if the quote is no longer held; nothing changes
// then. Fault: NotFound.
func (m *Market) ReturnQuote(ctx context.Context, who account.Principal, q id.Quote) (Quote, error) {
	var out Quote
	err := m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if out, err = m.lockQuote(ctx, tx, who.Org, q); err != nil || out.State != QuoteHeld {
			return err
		}
		out.State = QuoteReturned
		return m.endQuote(ctx, tx, out, host.EndReturned)
	})
	return out, err
}

// Rentable returns the placement of the quote, whose GPUs its claims keep. It returns Conflict if the quote expired,
// was cancelled or rented, or if one of its hosts is no longer available. now is the time on PostgreSQL's clock, read
// after the locks.
func (l *LockedQuote) Rentable(now time.Time) (Placement, error) {
	q := &l.quote
	switch {
	case q.State == QuoteRented:
		return Placement{}, fault.New(fault.Conflict, "the quote is rented already, as cluster %s", q.Cluster)
	case q.State == QuoteReturned:
		return Placement{}, fault.New(fault.Conflict, "the quote was given back: ask for a new one")
	case q.State == QuoteExpired, !now.Before(q.ExpiresAt):
		return Placement{}, fault.New(fault.Conflict, "the quote expired at %s: ask for a new one",
			q.ExpiresAt.Format("15:04:05 UTC"))
	}
	for i := range l.hosts {
		if l.hosts[i].Org == l.renter {
			return Placement{}, errOwnHost
		}
		if why := l.hosts[i].Unsellable(now); why != "" {
			return Placement{}, fault.New(fault.Conflict, "a host of the quote is no longer available (%s): ask for a new one",
				why)
		}
	}
	return q.Placement, nil
}

// endQuote records the end of a locked quote and ends its claims.
func (m *Market) endQuote(ctx context.Context, tx *db.Tx, q Quote, reason string) error {
	if err := tx.Q.EndQuote(ctx, string(q.State), q.Cluster, q.ID); err != nil {
		return fmt.Errorf("end %s: %w", q.ID, err)
	}
	return host.EndClaims(ctx, tx, q.ID.UUID(), reason)
}

// sweepSize is the largest number of quotes that one call of ExpireQuotes ends.
const sweepSize = 500

// ExpireQuotes marks expired quotes, deletes their secrets and ends their claims. A worker calls it every few seconds.
// Nothing waits for it, because expired claims do not prevent new ones.
func (m *Market) ExpireQuotes(ctx context.Context) (expired int, err error) {
	if _, err := host.ExpireClaims(ctx, m.db, sweepSize*MaxGPUsPerNode); err != nil {
		return 0, err
	}
	ids, err := m.db.Q.ExpireQuotes(ctx, sweepSize)
	if err != nil {
		return 0, fmt.Errorf("expire quotes: %w", err)
	}
	return len(ids), nil
}

// Prune deletes fleet changes that every replica has read long ago. A worker calls it every few minutes.
func (m *Market) Prune(ctx context.Context) (pruned int64, err error) {
	n, err := m.db.Q.PruneFleetChanges(ctx, int64(keptFor.Seconds()))
	if err != nil {
		return 0, fmt.Errorf("prune changes: %w", err)
	}
	return n, nil
}
