package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// store holds what a server remembers, under the lock around it, and knows the time. Every resource reads and writes
// its objects here.
type store struct {
	state
	mu    guard
	clock func() time.Time
}

// state is all the server remembers.
type state struct {
	Customers shelf[customer]      `json:"customers"`
	Methods   shelf[paymentMethod] `json:"payment_methods"`
	Setups    shelf[setupIntent]   `json:"setup_intents"`
	Payments  shelf[payment]       `json:"payments"`
	Charges   shelf[charge]        `json:"charges"`
	Refunds   shelf[refund]        `json:"refunds"`
	Disputes  shelf[dispute]       `json:"disputes"`
	Balance   shelf[balanceTx]     `json:"balance"`
	Warnings  shelf[fraudWarning]  `json:"early_fraud_warnings"`
	Sessions  shelf[session]       `json:"sessions"`
	Accounts  shelf[account]       `json:"accounts"`
	Links     shelf[accountLink]   `json:"account_links"`
	Transfers shelf[transfer]      `json:"transfers"`
	Meters    shelf[meter]         `json:"meters"`
	Usage     shelf[meterEvent]    `json:"meter_events"`
	Products  shelf[product]       `json:"products"`
	Prices    shelf[price]         `json:"prices"`
	Endpoints shelf[endpoint]      `json:"webhook_endpoints"`

	Subscriptions shelf[subscription] `json:"subscriptions"`
	Invoices      shelf[invoice]      `json:"invoices"`
	Items         shelf[invoiceItem]  `json:"invoice_items"`

	Keys   shelf[answer]  `json:"idempotency_keys"`
	Events shelf[waiting] `json:"waiting_events"`
}

// open reads the state, an earlier version's in a file if that is all there is.
func (st *store) open(earlier string) (err error) {
	unreached := try(func() {
		if earlier != "" {
			err = st.readEarlier(earlier)
			return
		}
		st.read(func() answer { return answer{} })
	})
	return errors.Join(err, unreached)
}

func (st *store) read(f func() answer) answer {
	st.mu.Lock()
	defer st.mu.Unlock()
	return f()
}

// now is the present second, as Stripe's objects have it.
func (st *store) now() int64 { return st.clock().Unix() }

// save keeps what was changed under the lock. Nothing may be changed after it until the lock is taken again.
func (st *store) save() {
	if st.mu.shared == nil {
		return
	}
	if err := st.mu.shared.commit(); err != nil {
		st.mu.shared.forget()
		panic(unavailable{err})
	}
}

// readEarlier takes over the file in which earlier versions kept their state, where there is none yet. Idempotency keys
// and events under way are not taken over.
func (st *store) readEarlier(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, k := range st.mu.shelves {
		if k.size() > 0 {
			return nil
		}
	}
	if err := json.Unmarshal(b, &st.state); err != nil {
		return fmt.Errorf("the sandbox's Stripe cannot read its state, %s, which another version may have written: start "+
			"in another folder, or remove this one with muster dev --down; no real money is in it: %w", file, err)
	}
	for _, k := range st.mu.shelves {
		k.touchAll()
	}
	st.save()
	return nil
}
