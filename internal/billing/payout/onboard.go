package payout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// AccountState is how far an operator is with their account at Stripe.
type AccountState = client.PayoutAccountState

const (
	NoAccount  = client.PayoutAccountNone       // not requested yet
	Making     = client.PayoutAccountMaking     // requested, and Stripe has yet to answer
	Refused    = client.PayoutAccountRefused    // Stripe refused to create it; see Failure
	Incomplete = client.PayoutAccountIncomplete // Stripe wants to know more: Due
	Checking   = client.PayoutAccountChecking   // Stripe is verifying the details
	Ready      = client.PayoutAccountReady      // money sent there arrives
	Disabled   = client.PayoutAccountDisabled   // Stripe switched it off: Disabled
)

// Account is where an operator is paid.
type Account = client.PayoutAccount

// Account returns where the org is paid.
func (p *Payouts) Account(ctx context.Context, org id.Org) (Account, error) {
	r, err := p.d.Q.PayoutAccount(ctx, org)
	if db.NoRows(err) {
		return p.viewAccount(nil), nil
	}
	if err != nil {
		return Account{}, fmt.Errorf("read payout account of %s: %w", org, err)
	}
	return p.viewAccount(&r), nil
}

// viewAccount returns an account as its owner sees it; nil: there is none.
func (p *Payouts) viewAccount(r *dbq.PayoutAccount) Account {
	if r == nil {
		return Account{State: NoAccount, Due: []string{}, Sandbox: p.cfg.Sandbox}
	}
	a := Account{
		State:   stateOf(*r),
		Country: r.Country,
		Due:     append([]string{}, r.Due...),
		Failure: r.Failure,
		Stopped: r.Stopped,
		NextAt:  &r.NextAt,
		Sandbox: p.cfg.Sandbox,
	}
	if a.State == Disabled {
		a.Disabled = r.Disabled
	}
	return a
}

func stateOf(r dbq.PayoutAccount) AccountState {
	switch {
	case r.StripeAccount == nil && r.Failure != "":
		return Refused
	case r.StripeAccount == nil:
		return Making
	case r.Ready:
		return Ready
	case len(r.Due) > 0 || !r.Submitted:
		return Incomplete
	case r.Disabled != "" && r.Disabled != "requirements.pending_verification" && r.Disabled != "under_review":
		return Disabled
	}
	return Checking
}

var twoLetters = regexp.MustCompile(`^[A-Z]{2}$`)

// Onboard creates an account at Stripe for the org unless it has one, and returns the URL of Stripe's form, where the
// account's owner gives their identity and bank account: for one visit, within minutes. country (ISO 3166-1, two
// letters) cannot be changed once the account is created; it may be empty then. Faults: Invalid (the country),
// Unavailable (Stripe cannot be reached: try again), Conflict (Stripe refused to create it). With an idempotency key
// the account is requested once.
func (p *Payouts) Onboard(ctx context.Context, who account.Principal, country string,
	key idem.Request) (url string, _ idem.Outcome, err error) {
	var send []id.Outbox
	_, done, err := idem.Once(ctx, p.d, key.ByReference(), func(ctx context.Context, tx *db.Tx) (_ struct{}, err error) {
		send, err = p.wantAccount(ctx, tx, who, country)
		return struct{}{}, err
	})
	if err != nil {
		return "", idem.Outcome{}, fmt.Errorf("onboard %s: %w", who.Org, err)
	}
	if !done.Replayed {
		p.out.SendNow(ctx, send)
	}
	url, err = p.onboardingPage(ctx, who.Org)
	return url, done.Again(), err
}

// onboardingPage creates a link to Stripe's form for the org's account. Faults: those of Onboard.
func (p *Payouts) onboardingPage(ctx context.Context, org id.Org) (url string, err error) {
	r, err := p.d.Q.PayoutAccount(ctx, org)
	if err != nil {
		return "", fmt.Errorf("read account of %s: %w", org, err)
	}
	unreachable := fault.New(fault.Unavailable, "Stripe cannot be reached now: try again in a minute")
	switch {
	case r.StripeAccount == nil && r.Failure != "":
		return "", fault.New(fault.Conflict, "%s", r.Failure)
	case r.StripeAccount == nil:
		return "", unreachable
	}
	url, err = p.out.Client().CreateAccountLink(ctx, "account_link:"+id.New[id.Outbox]().String(),
		stripe.NewAccountLink{
			Account: *r.StripeAccount,
			Refresh: p.cfg.PageURL + "?again=1",
			Return:  p.cfg.PageURL + "?returned=1",
		})
	if err != nil {
		p.log.WarnContext(ctx, "Stripe did not create an onboarding page", "org", org, "err", err)
		return "", unreachable
	}
	return url, nil
}

// wantAccount queues the creation of the org's account, unless it exists or is queued already.
func (p *Payouts) wantAccount(ctx context.Context, tx *db.Tx, who account.Principal,
	country string) ([]id.Outbox, error) {
	r, err := tx.Q.PayoutAccountForUpdate(ctx, who.Org)
	if err != nil && !db.NoRows(err) {
		return nil, err
	}
	if err == nil && (r.StripeAccount != nil || r.Failure == "") {
		return nil, nil
	}
	if !twoLetters.MatchString(country) {
		return nil, fault.InvalidField("country", "must be the two capital letters of the country in which you are paid, "+
			"such "+
			"as DE")
	}
	now, nowErr := tx.Now(ctx)
	if nowErr != nil {
		return nil, nowErr
	}
	if db.NoRows(err) {
		n, err := tx.Q.InsertPayoutAccount(ctx, dbq.InsertPayoutAccountParams{
			OrgID:   who.Org,
			UserID:  who.User,
			Country: country,
			NextAt:  next(now, p.cfg.Every),
		})
		if err != nil || n == 0 { // another request was quicker
			return nil, err
		}
		r.Tries = 1
	} else {
		if err := tx.Q.RetryPayoutAccount(ctx, who.User, country, who.Org); err != nil {
			return nil, err
		}
		r.Tries++
	}
	if err := audit.Record(ctx, tx, who.Event("payout.account", who.Org.String(),
		map[string]any{"country": country})); err != nil {
		return nil, err
	}
	return outbox.Add(ctx, tx, kindAccount, who.Org.String(), fmt.Sprintf("account:%s:%d", who.Org, r.Tries),
		stripe.NewAccount{Org: who.Org.String(), Country: country, Email: who.Email,
			Recipient: slices.Contains(p.cfg.RecipientCountries, country)})
}

// accountSender creates accounts of operators.
type accountSender struct{ *Payouts }

// Send makes an account. A second one, made a day later because no answer ever came, does no harm: the first one
// that is booked stands, and no money goes to the other.
func (p accountSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewAccount
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return "", nil, err
	}
	org, err := id.Parse[id.Org](n.Org)
	if err != nil {
		return "", nil, err
	}
	a, err := client.CreateAccount(ctx, row.Key, n)
	if err != nil {
		return "", nil, err
	}
	return a.ID, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.SetPayoutAccountID(ctx, &a.ID, org); err != nil {
			return fmt.Errorf("set account of %s: %w", org, err)
		}
		return p.noteAccount(ctx, tx, org, a)
	}, nil
}

func (p accountSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	org, err := id.Parse[id.Org](row.Ref)
	if err != nil {
		return err
	}
	return tx.Q.FailPayoutAccount(ctx, "Stripe did not create the account: "+why.Message, org)
}

// noteAccount stores the state of an org's account at Stripe, and notifies the org when that changes what they have to
// do.
func (p *Payouts) noteAccount(ctx context.Context, tx *db.Tx, org id.Org, a stripe.Account) error {
	r, err := tx.Q.PayoutAccountForUpdate(ctx, org)
	if err != nil {
		return fmt.Errorf("lock account of %s: %w", org, err)
	}
	if r.StripeAccount == nil || *r.StripeAccount != a.ID {
		return nil // made twice: the other one stands
	}
	if err := tx.Q.SetPayoutAccountState(ctx, dbq.SetPayoutAccountStateParams{
		Submitted: a.Submitted,
		Ready:     a.Ready(),
		Due:       append([]string{}, a.Due...),
		Checking:  append([]string{}, a.Pending...),
		Disabled:  a.Disabled,
		OrgID:     org,
	}); err != nil {
		return fmt.Errorf("set account of %s: %w", org, err)
	}
	if !r.Ready || a.Ready() {
		return nil
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "payout_account:" + id.New[id.Payout]().String(),
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    "You cannot be paid now",
		Body: "Stripe needs more information about your payout account. Your earnings wait until you provide it: see " +
			"the payouts page.",
	})
	return err
}

// refreshAccount reads an account from Stripe and stores its state.
func (p *Payouts) refreshAccount(ctx context.Context, object string) (note string, err error) {
	a, err := p.out.Client().Account(ctx, object)
	if e := stripe.As(err); e != nil && (e.Outcome == stripe.Missing || e.Code == stripe.CodeAccountInvalid) {
		return p.accountGone(ctx, object)
	}
	if err != nil {
		return "", err
	}
	org, err := id.Parse[id.Org](a.Org)
	if err != nil {
		return "not an account of this platform", nil
	}
	err = p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return p.noteAccount(ctx, tx, org, a) })
	if db.NoRows(err) {
		return "not an account of this platform", nil
	}
	return "", err
}

// DisabledDisconnected is Account.Disabled of an account that is closed, or does not let the platform act for it.
const DisabledDisconnected = "disconnected"

// accountGone notes that an account is closed, or not connected to the platform any more: nothing can be sent there.
func (p *Payouts) accountGone(ctx context.Context, object string) (note string, err error) {
	org, err := p.d.Q.PayoutAccountOfStripe(ctx, &object)
	if db.NoRows(err) {
		return "not an account of this platform", nil
	}
	if err != nil {
		return "", fmt.Errorf("read org of %s: %w", object, err)
	}
	return "Stripe does not know it", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.noteAccount(ctx, tx, org, stripe.Account{
			ID:        object,
			Org:       org.String(),
			Submitted: true,
			Disabled:  DisabledDisconnected,
		})
	})
}

// RefreshAccount reads the org's account from Stripe, for an operator who comes back from Stripe's form.
func (p *Payouts) RefreshAccount(ctx context.Context, org id.Org) error {
	r, err := p.d.Q.PayoutAccount(ctx, org)
	if db.NoRows(err) || err == nil && r.StripeAccount == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read account of %s: %w", org, err)
	}
	_, err = p.refreshAccount(ctx, *r.StripeAccount)
	return err
}

// PollAccounts reads accounts from Stripe that no event was about for a while, and returns how many it read.
func (p *Payouts) PollAccounts(ctx context.Context) (n int, err error) {
	stale, err := p.d.Q.StalePayoutAccounts(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("claim accounts to refresh: %w", err)
	}
	var errs []error
	for _, a := range stale {
		if ctx.Err() != nil {
			break
		}
		if _, err := p.refreshAccount(ctx, a); err != nil {
			errs = append(errs, fmt.Errorf("ask about %s: %w", a, err), p.pollFailed(ctx, a, err))
			continue
		}
		errs = append(errs, notify.DropDeadLetter(ctx, p.d.Q, queueAccounts, a))
		n++
	}
	return n, errors.Join(errs...)
}

// queueAccounts names accounts that cannot be read among the dead letters.
const queueAccounts = "payout_account_poll"

// pollFailed postpones the next reading of an account that could not be read.
func (p *Payouts) pollFailed(ctx context.Context, stripeAccount string, why error) error {
	if stripe.IsBackOff(why) {
		return nil // in ten minutes, as the scan set
	}
	wait, err := notify.DeadLetter(ctx, p.d, queueAccounts, stripeAccount, why)
	if err != nil {
		return err
	}
	return p.d.Q.PostponePayoutPoll(ctx, wait.Seconds(), &stripeAccount)
}

const batchRows = 50
