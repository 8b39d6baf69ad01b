package cli

import (
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// platformCommand is what the platform's own operators do. (muster server admin says who is one.)
func platformCommand(s *shell) *cobra.Command {
	cmd := noun("admin", "The platform's own desk, for its operators: books, organisations, payouts", adminLedger(s),
		adminSearch(s), adminCompensate(s), adminSuspense(s), adminDeadLetters(s),
		adminQuarantine(s), adminFrozen(s), adminUnfreeze(s), adminGangs(s), adminHeldCredits(s), adminDecideCredit(s),
		adminPromo(s), adminPostpaid(s), adminReviews(s), adminStandings(s), adminForgive(s), adminTax(s), adminRemitTax(s),
		adminDocuments(s),
		adminTodo(s), adminOrgs(s), adminOrg(s), adminSet(s), adminPayouts(s), adminSending(s), adminSecret(s), adminAudit(s),
		adminAgents(s), adminChannel(s),
		adminDecide(s, "release", "Let what is in review become payable as usual", (*client.Client).ApprovePayoutReview),
		adminDecide(s, "refuse", "Keep what is in review from the operator for good; they read the reason",
			(*client.Client).RefusePayoutReview))
	cmd.Long = `The platform's own books, for its operators. muster server admin EMAIL makes one of a user; their
account page then makes tokens with the scope admin, for muster login.`
	cmd.Example = "  muster admin books\n  muster admin search cl_…\n  muster admin compensate tx_… --amount 1.50 " +
		"--reason 'an outage of ours'"
	return cmd
}

func adminLedger(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "books", Short: "Check that the ledger balances", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.client(cmd).TrialBalance(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.show(cmd, b, func(p *printer) { printTrialBalance(p, b) }); err != nil {
				return err
			}
			if !b.Balanced {
				return fault.New(fault.Conflict, "the books do not balance")
			}
			return nil
		},
	}
}

func printTrialBalance(p *printer, b client.TrialBalance) {
	p.facts("Debits", wholeNano(b.Debits), "Credits", wholeNano(b.Credits))
	var rows [][]string
	for _, a := range b.Accounts {
		rows = append(rows, []string{a.Kind, a.Currency, wholeNano(a.Nano)})
	}
	p.table([]string{"ACCOUNTS", "CURRENCY", ">BALANCE"}, rows)
	for _, x := range b.Problems {
		p.line("PROBLEM: %s", x)
	}
	if b.Balanced {
		p.line("They balance.")
	}
}

// wholeNano writes whole nano-units of any size as a decimal.
func wholeNano(s string) string {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return s
	}
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	whole, rest := new(big.Int).QuoRem(n.Abs(n), big.NewInt(int64(money.Unit)), new(big.Int))
	return fmt.Sprintf("%s%s.%09d", sign, whole, rest)
}

func adminSearch(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Search ledger entries by id, key or object, newest first", Args: exactly("TEXT"),
		Long: "Find entries by their id or key, or by the id of the organisation, cluster, top-up or refund they belong to.",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := s.client(cmd).SearchLedger(cmd.Context(), args[0], client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) {
				for _, e := range page.Items {
					printEntry(p, e)
				}
				p.line("%d entries.", len(page.Items))
				printNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func printEntry(p *printer, e client.LedgerEntry) {
	p.facts("Entry", e.ID, "When", e.At, "Kind", e.Kind, "Key", e.Key, "For", e.Memo, "Of", e.Ref, "Corrects", e.Corrects)
	for _, t := range e.Transfers {
		p.line("  %s %s  from %s to %s", t.Amount, t.Currency, accountOf(t.Debit, t.DebitOrg),
			accountOf(t.Credit, t.CreditOrg))
	}
	p.line("")
}

func accountOf(kind, org string) string {
	if org == "" {
		return kind
	}
	return kind + " of " + org
}

func adminCompensate(s *shell) *cobra.Command {
	var amount, reason string
	cmd := &cobra.Command{
		Use:   "compensate CHARGE",
		Short: "Give a charge back to its renter, in part or whole",
		Args:  exactly("CHARGE"),
		Example: "  muster admin compensate tx_… --reason 'an outage of ours'\n  muster admin compensate tx_… --amount " +
			"1.50 --reason 'half of it'",
		RunE: func(cmd *cobra.Command, args []string) error {
			charge, err := id.Parse[id.LedgerTx](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "CHARGE: want the id of an entry; see muster admin search")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: renter and operator read it")
			}
			var n money.Nano
			if amount != "" {
				if n, err = money.ParseNano(amount); err != nil {
					return fault.New(fault.Invalid, "--amount: %s", err)
				}
				if n <= 0 {
					return fault.New(fault.Invalid, "--amount is above zero; left out, it is all that is left of the charge")
				}
			}
			e, err := s.client(cmd).Compensate(cmd.Context(), charge, n, reason)
			return s.result(cmd, e, err, func(p *printer) { printEntry(p, e) })
		},
	}
	cmd.Flags().StringVar(&amount, "amount", "", "a decimal (default: all that is left of the charge)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; both sides read it")
	return cmd
}

func adminSuspense(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "suspense", Short: "Compare Stripe's balance with the ledger: mismatches and suspense", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.client(cmd).Reconciliation(cmd.Context())
			return s.result(cmd, r, err, func(p *printer) {
				p.facts("Stripe holds", nano(r.Stripe)+" "+r.Currency, "The books say", nano(r.Clearing)+" "+r.Currency,
					"Difference", nano(r.Difference),
					"Matched", fmt.Sprint(r.Matched), "Waiting", fmt.Sprint(r.Waiting), "In suspense", fmt.Sprint(r.Suspense))
				if f := r.Funds; f != nil {
					p.facts("Stripe's balance", nano(f.Available)+" available, "+nano(f.Pending)+" pending", "Reserved there",
						nano(f.Reserved),
						"Less the books", nano(f.Unbooked), "Not explained", nano(f.Unread), "Asked at", when(f.ReadAt))
					if f.Wrong {
						p.line("Stripe's balance is not what its changes come to, since %s.", when(*f.OffSince))
					}
				}
				var rows [][]string
				for _, x := range r.Open {
					rows = append(rows, []string{when(x.At), x.State, x.Type, nano(x.Amount), x.ID + " " + x.Source})
				}
				for _, x := range r.Unproven {
					rows = append(rows, []string{when(x.At), "not at Stripe", x.Kind, nano(x.Amount), x.Key})
				}
				if len(rows) > 0 {
					p.table([]string{"WHEN", "STATE", "WHAT", ">AMOUNT", "NAME"}, rows)
				}
			})
		},
	}
}

func adminQuarantine(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "quarantine", Short: "List usage segments that were refused, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Quarantine(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, r := range page.Items {
					rows[i] = []string{when(r.At), r.Host.String(), r.Lease, fmt.Sprint(r.Seq), r.Reason, r.Why}
				}
				p.table([]string{"WHEN", "HOST", "LEASE", ">SEGMENT", "REASON", "IT"}, rows)
				printNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "segments at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func adminFrozen(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:   "frozen",
		Short: "List leases whose money is frozen because their host signed two accounts of the same time",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).FrozenLeases(cmd.Context())
			return s.result(cmd, page, err, func(p *printer) {
				for _, f := range page.Items {
					p.facts("Lease", f.Lease.String(), "Cluster", fmt.Sprintf("%s, rank %d", f.Cluster, f.Rank), "Host",
						f.HostName+" "+f.Host.String(),
						"Renter", f.Renter.String(), "Operator", f.Operator.String(), "Charged", nano(f.Posted)+" "+f.Currency, "Waiting",
						nano(f.Waiting)+" "+f.Currency)
					for _, x := range f.Conflicts {
						p.line("  Segment %d of start %d: %s to %s stands; %s to %s came at %s.", x.Seq, x.Epoch, when(x.From),
							when(x.To), when(x.OtherFrom), when(x.OtherTo), when(x.At))
					}
					p.line("")
				}
				p.line("Frozen: %s.", counted(len(page.Items), "lease"))
			})
		},
	}
}

func adminUnfreeze(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "unfreeze LEASE",
		Short: "Unfreeze the money of a lease; the account that was signed first stands",
		Args:  exactly("LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := id.Parse[id.Lease](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "LEASE: want the id of a lease; see muster admin frozen")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the host's operator reads it")
			}
			if err := s.client(cmd).Unfreeze(cmd.Context(), l, reason); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"unfrozen": l.String()},
				func(p *printer) { p.line("Money for %s moves again.", l) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the host's operator reads it")
	return cmd
}
