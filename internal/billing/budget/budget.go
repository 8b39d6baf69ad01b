// Package budget keeps what an org lets itself, or one of its projects, spend: a hard cap, and the dearest and longest
// cluster it may rent.
//
// What always holds:
//   - What a budget has committed is what its clusters have cost since it was set, and what is held for them: each time
//     money is held it is added, each time some is given back it is taken off, in the same transaction. The budget of a
//     whole org also counts what its volumes were charged.
//   - Clusters never make committed rise above the cap. (A cap may be set below what is committed: then nothing more
//     is.) Money is held before time runs, so they never exceed it by a nano-unit. Stored data is charged even so.
//   - A budget is read and changed under the lock of its org's wallet.
//   - Its owner is notified once each when half, four fifths and all of it is spent, without what is merely held: the
//     first hour that is held for a cluster may be most of a small budget and come back. That what is held keeps a
//     cluster from being extended is notified too.
package budget

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Budgets are the use cases of budgets. Safe for concurrent use.
type Budgets struct {
	d        *db.DB
	currency string // ISO 4217, upper case
}

// New returns the use cases on d.
func New(d *db.DB, currency string) *Budgets { return &Budgets{d, currency} }

// Budget is a limit as it stands.
type Budget struct {
	ID      id.Budget
	Org     id.Org
	Project string // "" = the whole org
	Limits
	Committed money.Nano // spent or held since Since, and held then
	Spent     money.Nano // of Committed, booked: what is not is held
	Currency  string
	Since     time.Time
}

// Limits are what a budget allows. Nil: anything.
type Limits struct {
	Cap         *money.Nano
	MaxRate     *money.Micro // per hour, of one cluster
	MaxDuration *int64       // seconds of running time, of one cluster
}

// Name returns what people call it.
func (b Budget) Name() string { return nameOf(b.Project) }

func nameOf(project string) string {
	if project == "" {
		return "your organisation's budget"
	}
	return "the budget of project " + project
}

// Left returns how much more may be committed: nothing when the cap was set below what already is, nil without a cap.
func (b Budget) Left() *money.Nano {
	if b.Cap == nil {
		return nil
	}
	left := max(0, *b.Cap-b.Committed)
	return &left
}

// Reached returns the highest notified level that the budget has reached, in percent; 0 if none, or without a cap. It
// counts what is spent, as the notices do.
func (b Budget) Reached() int {
	if b.Cap == nil {
		return 0
	}
	return Level(b.Spent, *b.Cap)
}

// maxProject is the longest name of a project, in bytes.
const maxProject = 64

// Change is what to set of a budget.
type Change struct {
	Project string // "" = the whole org
	Limits
	KeepDuration bool // the longest run stays as it is; MaxDuration is not read
}

// Set creates the budget of the caller's org (project "") or of a project, or changes its limits. What it counts begins
// when it is created, with what is held then; to count from zero, remove it first. Running clusters keep what is
// authorised, at most an hour, and end then when they do not fit. Fault: Invalid.
func (s *Budgets) Set(ctx context.Context, who account.Principal, c Change,
	once idem.Request) (Budget, idem.Outcome, error) {
	return idem.Once(ctx, s.d, once, func(ctx context.Context, tx *db.Tx) (Budget, error) {
		if err := s.keepDuration(ctx, tx, who.Org, &c); err != nil {
			return Budget{}, err
		}
		if err := c.check(c.Project); err != nil {
			return Budget{}, err
		}
		if _, err := ledger.Lock(ctx, tx, ledger.Wallet(who.Org, s.currency)); err != nil {
			return Budget{}, err
		}
		n, err := tx.Q.SetBudget(ctx, dbq.SetBudgetParams{
			ID:           id.New[id.Budget](),
			OrgID:        who.Org,
			Project:      c.Project,
			Currency:     s.currency,
			Cap:          raw(c.Cap),
			MaxRate:      raw(c.MaxRate),
			MaxDurationS: c.MaxDuration,
		})
		if err != nil {
			return Budget{}, fmt.Errorf("set budget of %s: %w", who.Org, err)
		}
		b, err := get(ctx, tx.Q, who.Org, n)
		if err != nil {
			return Budget{}, err
		}
		detail := map[string]any{"project": b.Project, "cap": nil}
		if b.Cap != nil {
			detail["cap"] = b.Cap.Plain()
		}
		return b, audit.Record(ctx, tx, who.Event("budget.set", b.ID.String(), detail))
	})
}

// keepDuration reads the longest run that c keeps.
func (s *Budgets) keepDuration(ctx context.Context, tx *db.Tx, org id.Org, c *Change) error {
	if !c.KeepDuration {
		return nil
	}
	all, err := List(ctx, tx.Q, org)
	c.MaxDuration = nil
	for _, b := range all {
		if b.Project == c.Project {
			c.MaxDuration = b.MaxDuration
		}
	}
	return err
}

func (l Limits) check(project string) error {
	var bad fault.Fields
	if len(project) > maxProject || strings.ContainsFunc(project, func(r rune) bool { return r < ' ' }) ||
		strings.TrimSpace(project) != project {
		bad.Add("project", "want at most %d bytes of printable text", maxProject)
	}
	if l.Cap == nil && l.MaxRate == nil && l.MaxDuration == nil {
		bad.Add("cap", "want a cap, max_price_per_hour or max_duration")
	}
	if l.Cap != nil && (*l.Cap < 0 || *l.Cap > maxCap) {
		bad.Add("cap", "want 0 to %s", maxCap.Plain())
	}
	if l.MaxRate != nil && (*l.MaxRate <= 0 || *l.MaxRate > maxRate) {
		bad.Add("max_price_per_hour", "want more than 0 and at most %s", maxRate.Plain())
	}
	if l.MaxDuration != nil && (*l.MaxDuration < 60 || *l.MaxDuration > 366*86400) {
		bad.Add("max_duration", "want 60 seconds to 366 days")
	}
	return bad.Err()
}

const (
	maxCap  = 1_000_000_000 * money.Unit     // leaves room for sums in 64 bits
	maxRate = money.Micro(1_000_000_000_000) // a million units per hour, as in a spec
)

// List returns the budgets of the caller's org, its own first, then by project.
func (s *Budgets) List(ctx context.Context, who account.Principal) ([]Budget, error) {
	return List(ctx, s.d.Q, who.Org)
}

// List is Budgets.List for packages that hold a query.
func List(ctx context.Context, q *dbq.Queries, org id.Org) ([]Budget, error) {
	rows, err := q.Budgets(ctx, org, pgtype.UUID{})
	if err != nil {
		return nil, fmt.Errorf("list budgets of %s: %w", org, err)
	}
	out := make([]Budget, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out, nil
}

// Get returns a budget of the caller's org. Fault: NotFound.
func (s *Budgets) Get(ctx context.Context, who account.Principal, b id.Budget) (Budget, error) {
	return get(ctx, s.d.Q, who.Org, b)
}

func get(ctx context.Context, q *dbq.Queries, org id.Org, b id.Budget) (Budget, error) {
	rows, err := q.Budgets(ctx, org, pgtype.UUID{Bytes: b.UUID(), Valid: true})
	if err != nil {
		return Budget{}, fmt.Errorf("read budget %s: %w", b, err)
	}
	if len(rows) == 0 {
		return Budget{}, errNone
	}
	return of(rows[0]), nil
}

// Remove deletes a budget of the caller's org. Fault: NotFound.
func (s *Budgets) Remove(ctx context.Context, who account.Principal, b id.Budget) error {
	return s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, err := get(ctx, tx.Q, who.Org, b)
		if err != nil {
			return err
		}
		n, err := tx.Q.DeleteBudget(ctx, b, who.Org)
		if err != nil {
			return fmt.Errorf("remove budget %s: %w", b, err)
		}
		if n == 0 {
			return errNone
		}
		if err := notify.Withdraw(ctx, tx, who.Org, b.String()); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("budget.remove", b.String(), map[string]any{"project": was.Project}))
	})
}

var errNone = fault.New(fault.NotFound, "budget not found")

func of(r dbq.BudgetsRow) Budget {
	return Budget{
		ID:        r.ID,
		Org:       r.OrgID,
		Project:   r.Project,
		Committed: money.Nano(r.Committed),
		Spent:     money.Nano(r.Committed - r.Held),
		Currency:  r.Currency,
		Since:     r.CreatedAt,
		Limits:    Limits{Cap: typed[money.Nano](r.Cap), MaxRate: typed[money.Micro](r.MaxRate), MaxDuration: r.MaxDurationS},
	}
}

func raw[T ~int64](v *T) *int64 {
	if v == nil {
		return nil
	}
	n := int64(*v)
	return &n
}

func typed[T ~int64](v *int64) *T {
	if v == nil {
		return nil
	}
	n := T(*v)
	return &n
}
