// A page of the host calls the interface like its own routes: the browser sends the cookie.
const answer = await fetch("/ext/svc/me");
document.querySelector("#me").textContent = JSON.stringify(await answer.json(), null, 2);
