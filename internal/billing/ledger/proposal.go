package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// ManualKinds are the kinds of accounts of the platform between which staff may move money. What is compared with
// something else stays out: with Stripe's balance, with tax entries, with what was sold.
var ManualKinds = []Kind{KindSuspense, KindWithheld, KindBreakage, KindBadDebt, KindGoodwill, KindPromo, KindStripeFees,
	KindStandbyRelief, KindBank}

// Proposal is an entry that one member of the staff proposed, and another one may approve.
type Proposal = client.LedgerProposal

// States of a proposal.
const (
	ProposalOpen    = "open"
	ProposalBooked  = "booked"
	ProposalRefused = "refused"
)

// Draft is what is proposed.
type Draft struct {
	Debit, Credit Kind
	Currency      string
	Amount        money.Nano
	Reason        string
}

// check returns what is wrong with a draft.
func (d Draft) check() error {
	var bad fault.Fields
	for field, kind := range map[string]Kind{"debit": d.Debit, "credit": d.Credit} {
		if !slices.Contains(ManualKinds, kind) {
			bad.Add(field, "is not an account between which staff can move money")
		}
	}
	if d.Debit == d.Credit {
		bad.Add("credit", "is the same account as debit")
	}
	if d.Amount <= 0 {
		bad.Add("amount", "is a decimal above zero")
	}
	if d.Reason == "" || len(d.Reason) > 500 {
		bad.Add("reason", "must give the reason in at most 500 bytes; the ledger and the audit log keep it")
	}
	return bad.Err()
}

// Propose stores a draft of a member of the staff. Fault: Invalid.
func Propose(ctx context.Context, tx *db.Tx, who id.User, d Draft) (Proposal, error) {
	d.Reason = strings.TrimSpace(d.Reason)
	if err := d.check(); err != nil {
		return Proposal{}, err
	}
	p := id.New[id.LedgerProposal]()
	if err := tx.Q.InsertLedgerProposal(ctx, dbq.InsertLedgerProposalParams{
		ID:         p,
		DebitKind:  string(d.Debit),
		CreditKind: string(d.Credit),
		Currency:   d.Currency,
		Amount:     d.Amount,
		Reason:     d.Reason,
		ProposedBy: who,
	}); err != nil {
		return Proposal{}, fmt.Errorf("insert proposal: %w", err)
	}
	return ReadProposal(ctx, tx.Q, p)
}

// Decide books a proposal, or refuses it. Who proposed it may refuse it and not approve it. Faults: NotFound,
// Forbidden, Invalid (the reason), Conflict (it is decided already, or there is less in the account than it moves).
func Decide(ctx context.Context, tx *db.Tx, who id.User, p id.LedgerProposal, approve bool,
	reason string) (Proposal, error) {
	row, err := tx.Q.LedgerProposalForUpdate(ctx, p)
	if db.NoRows(err) {
		return Proposal{}, fault.New(fault.NotFound, "proposal not found")
	}
	if err != nil {
		return Proposal{}, fmt.Errorf("lock %s: %w", p, err)
	}
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
		return Proposal{}, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
	}
	switch {
	case row.State != ProposalOpen:
		return Proposal{}, fault.New(fault.Conflict, "the proposal is %s already", row.State)
	case approve && row.ProposedBy == who:
		return Proposal{}, fault.New(fault.Forbidden, "another member of the staff has to approve what you proposed")
	}
	state := ProposalRefused
	if approve {
		state = ProposalBooked
	}
	if err := tx.Q.DecideLedgerProposal(ctx, dbq.DecideLedgerProposalParams{State: state, DecidedBy: who,
		Decision: reason, ID: p}); err != nil {
		return Proposal{}, fmt.Errorf("decide %s: %w", p, err)
	}
	if approve {
		if err := bookProposal(ctx, tx, row); err != nil {
			return Proposal{}, err
		}
	}
	return ReadProposal(ctx, tx.Q, p)
}

func bookProposal(ctx context.Context, tx *db.Tx, p dbq.LedgerProposal) error {
	if err := tx.Q.LockLedgerProposals(ctx); err != nil {
		return err
	}
	debit := Account{Kind: Kind(p.DebitKind), Currency: p.Currency}
	credit := Account{Kind: Kind(p.CreditKind), Currency: p.Currency}
	for _, side := range []struct {
		of    Account
		moves money.Nano
	}{{debit, -p.Amount}, {credit, p.Amount}} {
		has, err := Balance(ctx, tx.Q, side.of)
		if err != nil {
			return err
		}
		if !empties(side.of.Kind, has, side.moves) {
			return fault.New(fault.Conflict, "%s has %s: an entry can only take it nearer to zero", side.of.Kind, has.Plain())
		}
	}
	e := Entry{
		Kind:      "admin_entry",
		Key:       "admin_entry:" + p.ID.UUID().String(),
		Memo:      p.Reason,
		Ref:       p.ID.String(),
		Transfers: []Transfer{{Debit: debit, Credit: credit, Amount: p.Amount}},
	}
	booked, err := Post(ctx, tx, e)
	if err == nil && !booked {
		err = fmt.Errorf("%s is in the ledger already", e.Key)
	}
	return err
}

// empties reports whether staff may move an account that has an amount by moves. What waits for a decision, in suspense
// or withheld, is only ever taken nearer to zero.
func empties(k Kind, has, moves money.Nano) bool {
	if k != KindSuspense && k != KindWithheld {
		return true
	}
	if has < 0 {
		has, moves = -has, -moves
	}
	return moves < 0 && -moves <= has
}

// ReadProposal reads a proposal. Fault: NotFound.
func ReadProposal(ctx context.Context, q *dbq.Queries, p id.LedgerProposal) (Proposal, error) {
	r, err := q.LedgerProposal(ctx, p)
	if db.NoRows(err) {
		return Proposal{}, fault.New(fault.NotFound, "proposal not found")
	}
	if err != nil {
		return Proposal{}, fmt.Errorf("read %s: %w", p, err)
	}
	return viewProposal(r), nil
}

// Proposals returns proposals, newest first, those older than before (zero: from the newest), at most limit; with open
// only those that wait.
func Proposals(ctx context.Context, q *dbq.Queries, open bool, before id.LedgerProposal,
	limit int) ([]Proposal, error) {
	rows, err := q.LedgerProposals(ctx, raw(before), open, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read proposals: %w", err)
	}
	out := make([]Proposal, len(rows))
	for i, r := range rows {
		out[i] = viewProposal(dbq.LedgerProposalRow(r))
	}
	return out, nil
}

func viewProposal(r dbq.LedgerProposalRow) Proposal {
	p := Proposal{
		ID:        r.ID,
		Debit:     r.DebitKind,
		Credit:    r.CreditKind,
		Amount:    r.Amount,
		Currency:  r.Currency,
		Reason:    r.Reason,
		Proposer:  r.Proposer,
		CreatedAt: r.CreatedAt.UTC(),
		State:     r.State,
		Decider:   r.Decider,
		Decision:  r.Decision,
	}
	if r.DecidedAt != nil {
		at := r.DecidedAt.UTC().Truncate(time.Microsecond)
		p.DecidedAt = &at
	}
	return p
}
