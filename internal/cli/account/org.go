package account

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

// OrgCommand is muster org.
func OrgCommand(s *base.Session) *cobra.Command {
	s.Argument("MEMBER", base.Names(s, func(c *client.Client) base.Lister[client.OrgMember] {
		return base.Unpaged(c.Org.ListMembers)
	}, func(m client.OrgMember) []string { return []string{base.Described(m.Email, m.Role)} }))
	s.Argument("INVITATION", invitations(s, func(c *client.Client) base.Lister[client.Invitation] {
		return base.Unpaged(c.Org.ListInvitations)
	}))
	return base.Noun("org", "Your organisation", orgLegal(s), orgZone(s), orgAudit(s), orgMembers(s),
		orgList(s), orgJoin(s), orgLeave(s))
}

func orgLegal(s *base.Session) *cobra.Command {
	var to client.Legal
	var erase bool
	cmd := &cobra.Command{
		Use:   "legal",
		Short: "Set your organisation's legal details; without flags, show them",
		Args:  base.Exactly(),
		Long: `Set the name, address, country and VAT id that receipts and statements show. They also decide the
tax on your payments. Only the details that have a flag are changed. A receipt keeps the details of the time of its
payment.`,
		Example: `  muster org legal --name 'Ada GmbH' --address 'Unter den Linden 1' --address '10117 Berlin' --country DE --vat-id DE136695976
  muster org legal --vat-id ''
  muster org legal --erase`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			if erase {
				if err := c.Org.EraseLegal(cmd.Context()); err != nil {
					return err
				}
			}
			l, err := c.Org.GetLegal(cmd.Context())
			if err != nil {
				return err
			}
			given := cmd.Flags().Changed
			if given("name") || given("address") || given("country") || given("vat-id") {
				for flag, set := range map[string]func(){
					"name": func() { l.Name = to.Name }, "address": func() { l.Address = to.Address },
					"country": func() { l.Country = to.Country }, "vat-id": func() { l.VATID = to.VATID },
				} {
					if given(flag) {
						set()
					}
				}
				if l, err = c.Org.SetLegal(cmd.Context(), client.SetLegalRequest{
					Name: l.Name, Address: append([]string{}, l.Address...), Country: l.Country, VATID: l.VATID,
				}); err != nil {
					return err
				}
			}
			return s.Show(cmd, l, func(p *base.Printer) {
				if l.Name == "" {
					p.Line("There are no legal details. Receipts and statements show only the name of your organisation: muster org " +
						"legal --help")
					return
				}
				p.Facts("Legal name", l.Name, "Address", strings.Join(l.Address, ", "), "Country", l.Country, "VAT id",
					base.OrDash(l.VATID), "Since", base.WhenPtr(l.ChangedAt))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&to.Name, "name", "", "the name in the register, or your own")
	f.StringArrayVar(&to.Address, "address", nil, "a line of the address, without the country; once for each of up to "+
		"6 lines")
	f.StringVar(&to.Country, "country", "", "two letters, ISO 3166-1")
	f.StringVar(&to.VATID, "vat-id", "", "empty: none")
	f.BoolVar(&erase, "erase", false, "delete the legal details")
	for _, flag := range []string{"name", "address", "country", "vat-id"} {
		cmd.MarkFlagsMutuallyExclusive("erase", flag)
	}
	return cmd
}

func orgZone(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "zone [ZONE]",
		Short: "Show or set the time zone of your organisation",
		Args:  base.AtMost("ZONE"),
		Long: `Show or set the time zone of your organisation: an IANA name, such as Europe/Berlin. Days, months
and years of statements, earnings and documents begin in it. Statements and documents that were issued keep the time
zone they were issued in.`,
		Example: "  muster org zone\n  muster org zone Europe/Berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			if len(args) == 1 {
				if _, err := c.Org.SetZone(cmd.Context(), client.Zone{Zone: args[0]}); err != nil {
					return err
				}
			}
			zone, err := c.Org.GetZone(cmd.Context())
			if err != nil {
				return err
			}
			return s.Show(cmd, zone, func(p *base.Printer) { p.Line("%s", zone.Zone) })
		},
	}
}
