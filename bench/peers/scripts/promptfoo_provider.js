const fs = require('fs');
const sleep = Number(process.env.AGENT_SLEEP_MS || 0);
const log = process.env.AGENT_LOG;
module.exports = class Echo {
  id() {
    return 'echo';
  }
  async callApi(prompt) {
    if (sleep) await new Promise((resolve) => setTimeout(resolve, sleep));
    if (log) fs.appendFileSync(log, `${Date.now()}000000 ${process.pid} ${prompt}\n`);
    return { output: prompt };
  }
};
