// `import "onceward/axios/auto"` guards the default instance of axios.

import axios from "axios";
import { guardAxios } from "./axios.js";

guardAxios(axios);
