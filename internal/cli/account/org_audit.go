package account

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

func orgAudit(s *base.Session) *cobra.Command {
	var page base.PageFlags
	var action string
	cmd := &cobra.Command{
		Use:   "audit [WORDS]",
		Short: "Search your organisation's audit log by an object's id, an e-mail address or words, newest first",
		Args:  cobra.ArbitraryArgs,
		Long: `Who of your organisation did what, when, from where: rents and releases, every shell, command, file
transfer and forwarded port with its rank and key, tokens and keys, money. It is never changed. It needs a token with
the scope "read".`,
		Example: `  muster org audit cl_01jd9w6n3q0000000000000001
  muster org audit --action cluster.shell
  muster org audit mira@example.com`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := s.Client(cmd).Org.ListAuditEvents(cmd.Context(), client.AuditQuery{
				PageOf: page.Of(),
				Q:      strings.Join(args, " "),
				Action: action,
			})
			return s.Result(cmd, all, err, func(p *base.Printer) { PrintAudit(p, all) })
		},
	}
	page.Flags(cmd, "acts")
	cmd.Flags().StringVar(&action, "action", "", "a word such as cluster.shell, or its noun: cluster")
	return cmd
}

// PrintAudit prints a page of an audit log.
func PrintAudit(p *base.Printer, all client.Page[client.AuditEvent]) {
	rows := make([][]string, len(all.Items))
	for i, e := range all.Items {
		rows[i] = []string{auditTime(e.At), e.Email, e.Address, e.Action, e.Object, auditDetail(e.Detail)}
	}
	p.List("events", []string{"TIME", "WHO", "FROM", "ACTION", "OBJECT", "DETAIL"}, rows)
	base.PrintNext(p, all.Next)
}

// auditTime formats an event's time as all times are.
func auditTime(at string) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return at
	}
	return base.When(t)
}

// auditDetail formats an event's details in one line, ordered by name.
func auditDetail(d map[string]any) string {
	names := make([]string, 0, len(d))
	for name := range d {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		v, err := json.Marshal(d[name])
		if text, ok := d[name].(string); ok || err != nil {
			v = []byte(text)
		}
		names[i] = name + "=" + string(v)
	}
	return strings.Join(names, " ")
}
