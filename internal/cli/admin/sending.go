package admin

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

func adminSending(s *base.Session) *cobra.Command {
	cmd := base.Noun("sending", "Pause everything that moves money at Stripe, or resume it", sendingShow(s),
		sendingSet(s, true), sendingSet(s, false))
	cmd.Example = "  muster admin sending show\n  muster admin sending pause --reason 'payouts look wrong'\n  muster " +
		"admin sending resume --reason 'checked the restore report'"
	return cmd
}

func sendingShow(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show whether requests that move money are sent to Stripe", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.Client(cmd).Admin.GetSending(cmd.Context())
			return s.Result(cmd, x, err, func(p *base.Printer) { printSending(p, x) })
		},
	}
}

func sendingSet(s *base.Session, pause bool) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "resume", Short: "Resume sending to Stripe, what waits first", Args: base.Exactly()}
	if pause {
		cmd.Use, cmd.Short = "pause", "Send no payment, refund, transfer, reversal, invoice or usage to Stripe; what is "+
			"decided meanwhile waits"
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := wantReason(reason); err != nil {
			return err
		}
		x, err := s.Client(cmd).Admin.SetSending(cmd.Context(), client.SetSendingRequest{Paused: pause, Reason: reason})
		return s.Result(cmd, x, err, func(p *base.Printer) { printSending(p, x) })
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func printSending(p *base.Printer, x client.Sending) {
	if !x.Paused {
		p.Line("Money is sent.")
		return
	}
	since := ""
	if x.Since != nil {
		since = " since " + x.Since.UTC().Format(time.DateTime) + " UTC"
	}
	p.Line("Sending of money is paused%s: %s", since, x.Reason)
}
