package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
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

var whyCommand = rows{
	name: "why", reads: true,
	about: "say whether somebody may do an action on a bank, and why; exit with 1 if not",
	setup: func(flags *flag.FlagSet, c *call) rowsAction {
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
			return c.why(ctx, t, holder, q)
		}
	},
}

// why asks q about a holder; zero: about the sender of q.
func (c *call) why(ctx context.Context, t target, holder svc.Identity, q svc.Question) error {
	if (holder == svc.Identity{}) == (q.Sender == "") || q.Bank == "" {
		return usageError("why needs -bank BANK and exactly one of -user, -service-account and -sender")
	}
	if q.UserID = holder.ID; holder.Kind == svc.KindServiceAccount {
		q.UserID, q.ServiceAccountID = "", holder.ID
	}
	resolution, err := t.resolve(ctx, q)
	if err != nil {
		return err
	}
	return c.printDecision(resolution)
}

func (c *call) printDecision(r svc.Resolution) (err error) {
	d := decided{Allowed: r.Outcome == svc.Allow, Reason: r.Reason, Trace: []statement{}}
	for _, e := range r.Trace {
		s := statement{e.PolicyID, e.Via, e.Statement, string(e.Code), e.Reason}
		d.Trace = append(d.Trace, s)
	}
	if c.asJSON {
		err = showOne(c, d)
	} else {
		reason := d.Reason
		if !d.Allowed && !strings.HasPrefix(reason, "denied") {
			// The reason names what is missing or inactive.
			reason = "denied: " + reason
		}
		err = printLine(c.stdout, "%s", reason)
		for _, s := range d.Trace {
			number := fmt.Sprint("#", s.Statement)
			if s.Statement < 0 {
				number = "default"
			}
			err = errors.Join(err, printLine(c.stdout, "  %s %s (%s): %s",
				s.PolicyID, number, s.Via, s.Reason))
		}
	}
	if err == nil && !d.Allowed {
		err = silent(1)
	}
	return err
}

var whatCanCommand = rows{
	name: "what-can", reads: true,
	about: "list what somebody may do; with -url and nobody named," +
		" what the holder of the key may do",
	setup: func(flags *flag.FlagSet, c *call) rowsAction {
		named := holderFlags(flags)
		return func(ctx context.Context, t target) error {
			holder, err := named()
			if err != nil {
				return err
			}
			all, err := t.whatCan(ctx, holder)
			if err == nil && len(all) == 0 && !c.asJSON {
				return c.done(nil, "nothing: no policy allows anything, check the id")
			}
			return show(c, sequence(all, err), "ACTION\tBANK\tALLOWED", ofCapability)
		}
	},
}

// capabilityRow is a capability as what-can prints it.
type capabilityRow struct {
	Action  string `json:"action"`
	Bank    string `json:"bank"`
	Allowed bool   `json:"allowed"`
}

func ofCapability(x svc.Capability) capabilityRow {
	return capabilityRow{x.Action, x.Bank, x.Outcome == svc.Allow}
}

func (x capabilityRow) cells() []any { return []any{x.Action, x.Bank, x.Allowed} }

// whatCan returns what a holder may do; zero: the holder of the key that the server is asked with.
func (t target) whatCan(ctx context.Context, holder svc.Identity) ([]svc.Capability, error) {
	named := holder != (svc.Identity{})
	switch {
	case t.local == nil && !named:
		return t.far.Policies.WhatCanI(ctx)
	case t.local == nil: // the holder of the key must be allowed to export
		rows, err := t.export(ctx)
		if err == nil {
			t, err = judgedAlone(ctx, rows)
		}
		if err != nil {
			return nil, err
		}
	case !named:
		return nil, usageError("what-can needs -user ID or -service-account ID")
	}
	return t.local.Policies.WhatCan(ctx, t.by, holder)
}
