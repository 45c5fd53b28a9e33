package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	svcclient "github.com/extsvc/svc/client"
)

// decided is an answer as why prints it.
type decided struct {
	Allowed bool        `json:"allowed"`
	Reason  string      `json:"reason"`
	Trace   []statement `json:"trace"`
}

type statement struct {
	PolicyID  string `json:"policy_id"`
	Via       string `json:"via"`
	Statement int    `json:"statement"`
	Code      string `json:"code"`
	Reason    string `json:"reason"`
}

var whyCommand = rows{name: "why", about: "say whether somebody may do an action on a bank, and why; exit with 1 if not", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
	named := holderFlags(flags)
	q := svc.Question{}
	flags.StringVar(&q.Sender, "sender", "", "a `SENDER`, as provider:id")
	flags.StringVar(&q.Action, "action", action.Recall, "the `ACTION`")
	flags.StringVar(&q.Bank, "bank", "", "the id of the `BANK`")
	flags.StringVar(&q.Channel, "channel", "", "the `CHANNEL` of the request")
	flags.StringVar(&q.Topic, "topic", "", "the `TOPIC` of the request")
	return func(ctx context.Context, t target) error {
		holder, err := named()
		if err != nil {
			return err
		}
		if holder == (svc.Identity{}) && q.Sender == "" || q.Bank == "" {
			return usageError("why needs -bank BANK and one of -user, -service-account and -sender")
		}
		q := q
		if q.UserID = holder.ID; holder.Kind == svc.KindServiceAccount {
			q.UserID, q.ServiceAccountID = "", holder.ID
		}
		r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Resolution] {
			return of(s.Policies.Resolve(ctx, by, q))
		},
			func(r *svcclient.Client) result[svc.Resolution] { return of(r.Policies.Resolve(ctx, q)) })
		if r.err != nil {
			return r.err
		}
		return c.printDecision(r.value)
	}
}}

func (c *call) printDecision(r svc.Resolution) (err error) {
	d := decided{Allowed: r.Outcome == svc.Allow, Reason: r.Reason, Trace: []statement{}}
	for _, e := range r.Trace {
		d.Trace = append(d.Trace, statement{e.PolicyID, e.Via, e.Statement, string(e.Code), e.Reason})
	}
	if c.asJSON {
		err = showOne(c, d)
	} else {
		reason := d.Reason
		if !d.Allowed && !strings.HasPrefix(reason, "denied") { // it names what is missing or inactive
			reason = "denied: " + reason
		}
		_, err = fmt.Fprintln(c.stdout, reason)
		for _, s := range d.Trace {
			number := fmt.Sprint("#", s.Statement)
			if s.Statement < 0 {
				number = "default"
			}
			_, again := fmt.Fprintf(c.stdout, "  %s %s (%s): %s\n", s.PolicyID, number, s.Via, s.Reason)
			err = errors.Join(err, again)
		}
	}
	if err == nil && !d.Allowed {
		err = silent(1)
	}
	return err
}

// fetched returns a target over the access of a server, which the holder of the key must be allowed
// to export.
func fetched(ctx context.Context, t target) (target, error) {
	rows, err := t.far.Access.Export(ctx)
	if err != nil {
		return t, err
	}
	service, err := judgedAlone(ctx, rows)
	return target{local: service, by: svc.Host}, err
}

var whatCanCommand = rows{name: "what-can", about: "list what somebody may do; with -url and nobody named, what the holder of the key may do", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
	named := holderFlags(flags)
	return func(ctx context.Context, t target) error {
		holder, err := named()
		switch {
		case err != nil:
			return err
		case t.local != nil && holder == (svc.Identity{}):
			return usageError("what-can needs -user ID or -service-account ID")
		case t.local == nil && holder != (svc.Identity{}):
			if t, err = fetched(ctx, t); err != nil {
				return err
			}
		}
		r := ask(t, func(s *svc.Service, by svc.Principal) result[[]svc.Capability] {
			return of(s.Policies.WhatCan(ctx, by, holder))
		},
			func(r *svcclient.Client) result[[]svc.Capability] { return of(r.Policies.WhatCanI(ctx)) })
		type can struct {
			Action  string `json:"action"`
			Bank    string `json:"bank"`
			Allowed bool   `json:"allowed"`
		}
		return show(c, sequence(r.value, r.err), "ACTION\tBANK\tALLOWED", func(x can) []any { return []any{x.Action, x.Bank, x.Allowed} },
			func(x svc.Capability) can { return can{x.Action, x.Bank, x.Outcome == svc.Allow} })
	}
}}
