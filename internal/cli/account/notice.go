package account

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// NoticeCommand is muster notice.
func NoticeCommand(s *base.Session) *cobra.Command {
	s.Argument("NOTICE", notices(s))
	cmd := base.Noun("notice", "Read your organisation's notices", noticeList(s), noticeRead(s))
	cmd.Aliases = []string{"notices"}
	return cmd
}

// notices completes ids of notices.
func notices(s *base.Session) base.Completer {
	return base.Names(s, func(c *client.Client) base.Lister[client.Notice] {
		return func(ctx context.Context, p client.PageOf) (client.Page[client.Notice], error) {
			return c.Notices.List(ctx, client.NoticesQuery{PageOf: p})
		}
	}, func(n client.Notice) []string { return []string{base.Described(n.ID.String(), n.Title)} })
}

func noticeList(s *base.Session) *cobra.Command {
	var page base.PageFlags
	var unread bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's notices, newest first", Args: base.Exactly(),
		Example: "  muster notice list --unread",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Notices.List(cmd.Context(), client.NoticesQuery{PageOf: page.Of(), Unread: unread})
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, n := range all.Items {
					rows[i] = []string{base.When(n.CreatedAt), n.Severity, n.Title, base.OrDash(n.Object),
						base.OrDash(base.WhenPtr(n.ReadAt)), n.ID.String(), n.Body}
				}
				p.List("notices", []string{"WHEN", "SEVERITY", "NOTICE", "ABOUT", "READ", "ID", "+BODY"}, rows)
				base.PrintNext(p, all.Next)
			})
		},
	}
	page.Flags(cmd, "notices")
	cmd.Flags().BoolVar(&unread, "unread", false, "only notices that no member has read")
	return cmd
}

func noticeRead(s *base.Session) *cobra.Command {
	var older bool
	cmd := &cobra.Command{
		Use: "read NOTICE", Short: "Mark a notice as read", Args: base.Exactly("NOTICE"),
		Example: "  muster notice read ntc_…\n  muster notice read ntc_… --older",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := id.Parse[id.Notice](args[0])
			if err != nil || n.IsZero() {
				return fault.New(fault.Invalid, "%q is not the id of a notice; muster notice list lists them", args[0])
			}
			c := s.Client(cmd)
			if older {
				_, err = c.Notices.ReadNotices(cmd.Context(), client.ReadNoticesRequest{Newest: n})
			} else {
				_, err = c.Notices.Read(cmd.Context(), n)
			}
			return s.Result(cmd, map[string]string{"id": n.String()}, err, func(p *base.Printer) {
				if older {
					p.Line("%s and all older notices are marked as read.", n)
				} else {
					p.Line("%s is marked as read.", n)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&older, "older", false, "also mark all older notices")
	return cmd
}

// WebhookCommand is muster webhook.
func WebhookCommand(s *base.Session) *cobra.Command {
	s.Argument("NOTICE", notices(s))
	s.Argument("WEBHOOK", base.Names(s, func(c *client.Client) base.Lister[client.Webhook] {
		return base.Unpaged(c.Notices.ListWebhooks)
	}, func(w client.Webhook) []string { return []string{base.Described(w.ID.String(), w.URL)} }))
	cmd := base.Noun("webhook", "Send your organisation's notices to an address of yours", webhookCreate(s),
		webhookList(s),
		webhookDeliveries(s), webhookRetry(s), webhookEnable(s), webhookDelete(s))
	cmd.Aliases = []string{"webhooks"}
	return cmd
}

func webhookCreate(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "create URL", Short: "Send every new notice to an https address", Args: base.Exactly("URL"),
		Long: `Send every new notice of your organisation to an https address on the internet, as JSON.

Each request has the header Muster-Signature: t=TIME,v1=SIGNATURE. The signature is HMAC-SHA256, with the secret that
this command prints once, of TIME, a full stop and the body. An answer other than 2xx is an error. The notice is then
sent
again, for three days; after that the webhook is disabled.`,
		Example: "  muster webhook create https://example.com/muster",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := s.Client(cmd).Notices.CreateWebhook(cmd.Context(), client.CreateWebhookRequest{URL: args[0]})
			return s.Result(cmd, w, err, func(p *base.Printer) {
				p.Facts("Webhook", w.ID.String(), "Address", w.URL, "Secret", w.Secret)
				p.Line("Store the secret now: it is not shown again.")
			})
		},
	}
}

func webhookList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's webhooks", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Notices.ListWebhooks(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, w := range all.Items {
					state := "enabled"
					if w.DisabledAt != nil {
						state = "disabled: " + w.DisabledWhy
					}
					rows[i] = []string{w.ID.String(), w.URL, base.When(w.CreatedAt), state}
				}
				p.TableOr("No webhooks. Create one: muster webhook create https://example.com/muster",
					[]string{"ID", "ADDRESS", "CREATED", "STATE"}, rows)
			})
		},
	}
}

// onWebhook is a command about one webhook.
func onWebhook(s *base.Session, use, short string, f func(*cobra.Command, *client.Client,
	id.Webhook) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " WEBHOOK", Short: short, Args: base.Exactly("WEBHOOK"), Example: "  muster webhook " + use + " wh_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWebhook(args[0])
			if err != nil {
				return err
			}
			return f(cmd, s.Client(cmd), w)
		},
	}
}

func parseWebhook(arg string) (id.Webhook, error) {
	w, err := id.Parse[id.Webhook](arg)
	if err != nil || w.IsZero() {
		return w, fault.New(fault.Invalid, "%q is not the id of a webhook; muster webhook list lists them", arg)
	}
	return w, nil
}

func webhookDeliveries(s *base.Session) *cobra.Command {
	var page base.PageFlags
	cmd := onWebhook(s, "deliveries", "List what a webhook received and what it has not, newest first",
		func(cmd *cobra.Command, c *client.Client, w id.Webhook) error {
			all, err := c.Notices.ListDeliveries(cmd.Context(), w, page.Of())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, d := range all.Items {
					rows[i] = []string{d.NoticeID.String(), d.Title, d.State, base.Counted(d.Attempts, "attempt"),
						base.OrDash(d.Error), base.OrDash(base.FirstOf(base.WhenPtr(d.DeliveredAt), base.WhenPtr(d.NextAt)))}
				}
				p.List("deliveries", []string{"NOTICE", "TITLE", "STATE", "ATTEMPTS", "LAST ERROR", "DELIVERED, OR NEXT ATTEMPT"},
					rows)
				base.PrintNext(p, all.Next)
			})
		})
	page.Flags(cmd, "deliveries")
	return cmd
}

func webhookRetry(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "retry WEBHOOK NOTICE", Short: "Send a notice to a webhook again", Args: base.Exactly("WEBHOOK", "NOTICE"),
		Example: "  muster webhook retry wh_… ntc_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWebhook(args[0])
			if err != nil {
				return err
			}
			n, err := id.Parse[id.Notice](args[1])
			if err != nil || n.IsZero() {
				return fault.New(fault.Invalid, "%q is not the id of a notice; muster webhook deliveries lists them", args[1])
			}
			_, err = s.Client(cmd).Notices.RetryDelivery(cmd.Context(), w, n)
			return s.Result(cmd, map[string]string{"id": n.String()}, err, func(p *base.Printer) {
				p.Line("%s is sent again within seconds. See muster webhook deliveries %s.", n, w)
			})
		},
	}
}

func webhookEnable(s *base.Session) *cobra.Command {
	return onWebhook(s, "enable", "Send notices to a disabled webhook again",
		func(cmd *cobra.Command, c *client.Client, w id.Webhook) error {
			v, err := c.Notices.EnableWebhook(cmd.Context(), w)
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("%s is enabled. To send what it has missed: muster webhook retry %s NOTICE", w, w)
			})
		})
}

func webhookDelete(s *base.Session) *cobra.Command {
	cmd := onWebhook(s, "delete", "Delete a webhook", func(cmd *cobra.Command, c *client.Client, w id.Webhook) error {
		err := c.Notices.DeleteWebhook(cmd.Context(), w)
		return s.Result(cmd, map[string]string{"id": w.String()}, err, func(p *base.Printer) { p.Line("%s is deleted.", w) })
	})
	cmd.Aliases = []string{"rm"}
	return cmd
}
