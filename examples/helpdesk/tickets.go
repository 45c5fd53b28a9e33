package main

import (
	"context"
	"slices"
)

// The host's own tables. svc knows nothing of tickets.
const tables = `
	CREATE TABLE IF NOT EXISTS people (id TEXT PRIMARY KEY);
	CREATE TABLE IF NOT EXISTS tickets (id INTEGER PRIMARY KEY, queue TEXT NOT NULL,
		customer TEXT NOT NULL REFERENCES people, subject TEXT NOT NULL, text TEXT NOT NULL,
		priority TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '')`

// priorities are those of tickets, the least first.
var priorities = []string{"low", "normal", "urgent"}

// ticket maps columns to values.
type ticket map[string]any

// only returns a ticket with its id and these columns only.
func (t ticket) only(columns []string) ticket {
	shown := ticket{}
	for name, value := range t {
		if name == "id" || slices.Contains(columns, name) {
			shown[name] = value
		}
	}
	return shown
}

func (d *desk) addTicket(
	ctx context.Context, queue, customer, subject, text, priority string,
) error {
	const insert = `INSERT INTO tickets (queue, customer, subject, text, priority)
		VALUES (?, ?, ?, ?, ?)`
	_, err := d.store.DB().ExecContext(ctx, insert, queue, customer, subject, text, priority)
	return err
}

// newest returns at most limit tickets of a queue, the newest first.
func (d *desk) newest(ctx context.Context, queue string, limit int64) ([]ticket, error) {
	const query = `SELECT id, customer, subject, text, priority, answer FROM tickets
		WHERE queue = ? ORDER BY id DESC LIMIT ?`
	rows, err := d.store.DB().QueryContext(ctx, query, queue, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tickets := []ticket{}
	for rows.Next() {
		var id int64
		var customer, subject, text, priority, answer string
		if err := rows.Scan(&id, &customer, &subject, &text, &priority, &answer); err != nil {
			return nil, err
		}
		tickets = append(tickets, ticket{
			"id": id, "customer": customer, "subject": subject, "text": text,
			"priority": priority, "answer": answer,
		})
	}
	return tickets, rows.Err()
}

// answerTicket reports whether the queue has the ticket.
func (d *desk) answerTicket(ctx context.Context, queue, id, text string) (bool, error) {
	const update = `UPDATE tickets SET answer = ? WHERE id = ? AND queue = ?`
	result, err := d.store.DB().ExecContext(ctx, update, text, id, queue)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
