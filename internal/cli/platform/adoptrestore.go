package platform

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/server"
)

// adoptRestoreCommand makes a restored database the platform's.
func adoptRestoreCommand() *cobra.Command {
	var backupAt string
	var nothingLost bool
	cmd := &cobra.Command{
		Use:   "adopt-restore",
		Short: "Make a database that was restored to an earlier moment the platform's, before any server starts on it",
		Long: `Make a database that was restored to an earlier moment the platform's. Run it once, before any
server starts on that database, with the server's settings. If it fails, run it again: it goes on where it stopped.

It pauses the sending of money, raises the control epoch so that hosts follow this database and report their usage
again, records that no host has reported since the backup, requires every host to report what runs on it before it
sells, and books what Stripe did since the backup: top-ups, refunds, disputes and transfers. It prints what it found.
Read
that, decide what is open, and resume sending: muster admin sending resume.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			o := restore.Options{NothingLost: nothingLost}
			if backupAt != "" {
				if o.BackupAt, err = time.Parse(time.RFC3339, backupAt); err != nil {
					return fault.InvalidField("--backup-at", "is a moment such as 2026-11-22T01:00:00Z")
				}
			}
			r, err := server.AdoptRestore(cmd.Context(), cfg, o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			printRestore(cmd.OutOrStdout(), r)
			if len(r.Problems) > 0 {
				return fmt.Errorf("the ledger does not balance")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&backupAt, "backup-at", "", "the moment to which the database was restored (RFC 3339); left "+
		"out: the newest moment that it knows")
	cmd.Flags().BoolVar(&nothingLost, "nothing-lost", false, "no commit was lost, as after a lossless failover, a move "+
		"or pg_upgrade: only record that this is the database")
	return cmd
}

func printRestore(out io.Writer, r restore.Report) {
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	switch {
	case r.Epoch == 0:
		p("Nothing was to be adopted. This is the platform's database from now on.")
		return
	case r.Nothing:
		p("Nothing was to be adopted. The last adoption:")
	}
	p("Restored to      %s", r.BackupAt.UTC().Format(time.RFC3339))
	p("Adopted          %s", r.AdoptedAt.UTC().Format(time.RFC3339))
	p("Control epoch    %d", r.Epoch)
	p("Hosts to report  %d sell nothing until they have reported what runs on them", r.Hosts)
	n := map[payment.Outcome]int{}
	for _, f := range r.Findings {
		n[f.Outcome]++
		p("%-8s %-9s %14s %s  %s  %s", f.Outcome, f.Kind, f.Amount.Plain(), f.Currency, f.Object, f.Note)
	}
	p("At Stripe since the backup: %d booked now, %d open, %d not this platform's or booked by the reconciliation",
		n[payment.Booked], n[payment.Open], n[payment.Foreign])
	for _, x := range r.Problems {
		p("problem: %s", x)
	}
	if !r.Nothing {
		p("Sending of money is paused. Decide what is open, start the servers, then: muster admin sending resume --reason …")
	}
}
