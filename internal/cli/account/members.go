package account

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const roleNames = "owner, admin, member, operator, billing or viewer"

// orgMembers is muster org members.
func orgMembers(s *base.Session) *cobra.Command {
	return base.Noun("members", "Who is in your organisation, and with which role", memberList(s), memberInvite(s),
		memberInvitations(s), memberWithdraw(s), memberRole(s), memberRemove(s))
}

func memberList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the members of your organisation", Args: base.Exactly(),
		Example: "  muster org members list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Org.ListMembers(cmd.Context())
			return s.Result(cmd, all.Items, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, m := range all.Items {
					rows[i] = []string{m.ID.String(), m.Email, m.Name, m.Role, base.When(m.Since)}
				}
				p.Table([]string{"ID", "E-MAIL", "NAME", "ROLE", "SINCE"}, rows)
			})
		},
	}
}

func memberInvite(s *base.Session) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "invite EMAIL", Short: "Invite a person by e-mail", Args: base.Exactly("EMAIL"),
		Long: `Send an invitation by e-mail. The person becomes a member when they accept it, within 7 days. A
second invitation to the same address replaces the first.

Roles: owner (everything), admin (everything but owners), member (rents clusters), operator (runs hosts), billing (pays
and is paid), viewer (reads). Every role reads everything of the organisation.`,
		Example: "  muster org members invite bob@example.com --role viewer",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := s.Client(cmd).Org.CreateInvitation(cmd.Context(), client.CreateInvitationRequest{Email: args[0],
				Role: role})
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("%s is invited as %s, until %s.", v.Email, v.Role, base.When(v.ExpiresAt))
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "member", roleNames)
	return cmd
}

func memberInvitations(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "invitations", Short: "List open invitations to your organisation", Args: base.Exactly(),
		Example: "  muster org members invitations",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Org.ListInvitations(cmd.Context())
			return s.Result(cmd, all.Items, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, v := range all.Items {
					rows[i] = []string{v.ID.String(), v.Email, v.Role, v.Inviter, base.When(v.ExpiresAt)}
				}
				p.TableOr("No invitation is open.", []string{"ID", "E-MAIL", "ROLE", "BY", "EXPIRES"}, rows)
			})
		},
	}
}

func memberWithdraw(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "withdraw INVITATION", Short: "Withdraw an open invitation", Args: base.Exactly("INVITATION"),
		Example: "  muster org members withdraw inv_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := parseInvitation(args[0])
			if err == nil {
				err = s.Client(cmd).Org.WithdrawInvitation(cmd.Context(), v)
			}
			return s.Result(cmd, map[string]string{"withdrawn": v.String()}, err, func(p *base.Printer) {
				p.Line("%s is withdrawn.", v)
			})
		},
	}
}

func parseInvitation(text string) (id.Invitation, error) {
	v, err := id.Parse[id.Invitation](text)
	if err != nil {
		return v, fault.New(fault.Invalid, "want the id of an invitation, inv_…")
	}
	return v, nil
}

// member finds a member by id or e-mail address.
func member(s *base.Session, cmd *cobra.Command, text string) (client.OrgMember, error) {
	all, err := s.Client(cmd).Org.ListMembers(cmd.Context())
	if err != nil {
		return client.OrgMember{}, err
	}
	for _, m := range all.Items {
		if m.ID.String() == text || strings.EqualFold(m.Email, text) {
			return m, nil
		}
	}
	return client.OrgMember{}, fault.New(fault.NotFound, "%s is not a member; see muster org members list", text)
}

func memberRole(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "role MEMBER ROLE", Short: "Change a member's role; rights that it lacks end at once",
		Example: "  muster org members role bob@example.com billing",
		Args:    base.Exactly("MEMBER", "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := member(s, cmd, args[0])
			if err == nil {
				m, err = s.Client(cmd).Org.ChangeMember(cmd.Context(), m.ID, client.ChangeMemberRequest{Role: args[1]})
			}
			return s.Result(cmd, m, err, func(p *base.Printer) { p.Line("%s is %s now.", m.Email, m.Role) })
		},
	}
}

func memberRemove(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "remove MEMBER", Aliases: []string{"rm"}, Args: base.Exactly("MEMBER"),
		Example: "  muster org members remove bob@example.com",
		Short:   "Remove a member; their tokens, SSH keys and sessions of the organisation end at once",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := member(s, cmd, args[0])
			if err == nil {
				err = s.Client(cmd).Org.RemoveMember(cmd.Context(), m.ID)
			}
			return s.Result(cmd, map[string]string{"removed": m.ID.String()}, err, func(p *base.Printer) {
				p.Line("%s is no longer a member.", m.Email)
			})
		},
	}
}

// orgList is muster org list.
func orgList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisations, and open invitations to you",
		Args: base.Exactly(), Example: "  muster org list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			all, err := c.Account.ListMyOrgs(cmd.Context())
			if err != nil {
				return err
			}
			open, err := c.Account.ListMyInvitations(cmd.Context())
			out := map[string]any{"organisations": all.Items, "invitations": open.Items}
			return s.Result(cmd, out, err, func(p *base.Printer) {
				var rows [][]string
				for _, m := range all.Items {
					rows = append(rows, []string{m.Org.ID.String(), m.Org.Name, m.Role, base.When(m.Since)})
				}
				p.Table([]string{"ID", "NAME", "ROLE", "SINCE"}, rows)
				for _, v := range open.Items {
					p.Line("%s invites you to %s as %s: muster org join %s", v.Inviter, v.OrgName, v.Role, v.ID)
				}
			})
		},
	}
}

// invitations completes ids of the invitations that a list has.
func invitations(s *base.Session, list func(*client.Client) base.Lister[client.Invitation]) base.Completer {
	return base.Names(s, list, func(i client.Invitation) []string {
		return []string{base.Described(i.ID.String(), base.FirstOf(i.Email, i.OrgName), i.Role)}
	})
}

func orgJoin(s *base.Session) *cobra.Command {
	var decline bool
	cmd := &cobra.Command{
		Use: "join INVITATION", Short: "Accept an invitation to an organisation", Args: base.Exactly("INVITATION"),
		ValidArgsFunction: base.First(invitations(s, func(c *client.Client) base.Lister[client.Invitation] {
			return base.Unpaged(c.Account.ListMyInvitations)
		})),
		Example: "  muster org join inv_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := parseInvitation(args[0])
			if err != nil {
				return err
			}
			if decline {
				err = s.Client(cmd).Account.DeclineInvitation(cmd.Context(), v)
			} else {
				_, err = s.Client(cmd).Account.AcceptInvitation(cmd.Context(), v)
			}
			return s.Result(cmd, map[string]bool{"accepted": !decline}, err, func(p *base.Printer) {
				if decline {
					p.Line("The invitation is declined.")
					return
				}
				p.Line("You are a member now. A token belongs to one organisation: log in again to get one for this one, " +
					"with muster login --profile NAME.")
			})
		},
	}
	cmd.Flags().BoolVar(&decline, "decline", false, "decline it instead")
	return cmd
}

func orgLeave(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "leave", Short: "Leave the organisation of this login; its token ends, too", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := s.Client(cmd).Account.LeaveOrg(cmd.Context())
			return s.Result(cmd, map[string]bool{"left": err == nil}, err, func(p *base.Printer) {
				p.Line("You have left the organisation. This login's token has ended.")
			})
		},
	}
}
