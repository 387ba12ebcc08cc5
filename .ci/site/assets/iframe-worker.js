// Search without a server: a page that was opened from a disk may not start a worker. The worker's script runs in a
// hidden frame instead, which is given the few things that a worker has and a window has otherwise.
if (location.protocol === "file:") {
  const load = (document, url) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      document.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.started = new Promise((resolve) => (frame.onload = resolve)).then(async () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = async (...urls) => {
          for (const imported of urls) await load(inside.document, imported);
        };
        await load(inside.document, url);
        return inside;
      });
      frame.srcdoc = "<!doctype html>";
      document.body.append(frame);
    }

    async postMessage(data) {
      const inside = await this.started;
      inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
