// Command helpdesk is a host without memory: teams answer the tickets in their queues. Read it in
// this order:
//
//	step1_rules.go    which parameters and policies there are
//	step2_desk.go     the database, the Service and the routes
//	step3_people.go   a person signs up, in one transaction with an API key
//	step4_tickets.go  routes that Require guards, and that use the parameters of a decision
//	step5_page.go     one page for a browser, with a session
//
// tickets.go and browser.go are the host's own: they know nothing of svc.
//
// It keeps its database in a temporary folder, and prints requests to try:
//
//	go run ./examples/helpdesk
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8084"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, address string, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "helpdesk")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	d, err := openDesk(ctx, filepath.Join(folder, "helpdesk.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := httpapi.Server("", d.handler())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := d.try(ctx, "http://"+listener.Addr().String(), out); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(grace)
}

// tries are requests to try: whose key, the request, and the status of its answer.
const tries = `CARL -d 'subject=Paid twice' $URL/queues/billing/tickets # 200
CARL -d 'subject=Now&priority=urgent' $URL/queues/billing/tickets # 403: normal at most
CARL $URL/queues/billing/tickets # 403: customers read no queue
ADA $URL/queues/billing/tickets # 200: her team's queue, without customers
ADA $URL/queues/network/tickets # 403: another team's queue
ADA -d 'text=You have it back' $URL/queues/billing/tickets/1/answer # 303: to the page
WALL $URL/queues/billing/tickets # 200: a narrowed key, subjects alone
WALL -d text=no $URL/queues/billing/tickets/1/answer # 403: it only reads
LENA $URL/queues/billing/tickets # 200: all columns
LENA $URL/ext/svc/users # 200: she administers access`

// try signs people up and prints what to try.
func (d *desk) try(ctx context.Context, url string, out io.Writer) error {
	fmt.Fprintf(out, "URL=%s\n", url)
	for _, p := range []struct{ person, team, narrowedBy string }{
		{"carl", "customers", ""}, {"ada", "billing", ""}, {"lena", "leads", ""},
		{"wall", "billing", "wallboard"},
	} {
		key, err := d.signUp(ctx, p.person, p.team, svc.NewAPIKey{ScopingPolicyID: p.narrowedBy})
		if err != nil {
			return err
		}
		// A key is shown only here.
		fmt.Fprintf(out, "%s=%s\n", strings.ToUpper(p.person), string(key))
	}
	for line := range strings.Lines(tries) {
		who, request, _ := strings.Cut(line, " ")
		fmt.Fprintf(out, "curl -sS -H \"Authorization: Bearer $%s\" %s", who, request)
	}
	_, err := fmt.Fprintf(out, "\nAda's page: %s/sign-in/%s\n", url, d.newSession("ada"))
	return err
}
